/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* Lists the GPUs and MIG devices that it may use, as a job in a container finds them: by the driver's library, which is
 * no part of its image, and by the device files. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

typedef void *device_t;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned int *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t *device);
int nvmlDeviceGetMinorNumber(device_t device, unsigned int *minor);
int nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned int *count);
int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned int index, device_t *mig);
int nvmlDeviceGetName(device_t device, char *name, unsigned int length);
int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned int length);

static int opens(const char *path)
{
    int file = open(path, O_RDWR);
    return file >= 0 && close(file) == 0;
}

static void list_mig(device_t mig)
{
    char name[96], uuid[96], path[128];
    if (nvmlDeviceGetName(mig, name, sizeof name) || nvmlDeviceGetUUID(mig, uuid, sizeof uuid))
        return;
    /* Stands in for the device files of an instance, which the driver numbers. */
    snprintf(path, sizeof path, "/dev/nvidia-caps/%s", uuid);
    if (opens(path))
        printf("  %s (%s)\n", name, uuid);
}

static void list_gpu(unsigned int index)
{
    char name[96], uuid[96], path[32];
    unsigned int minor, most;
    device_t gpu, mig;
    if (nvmlDeviceGetHandleByIndex_v2(index, &gpu) || nvmlDeviceGetMinorNumber(gpu, &minor))
        return;
    snprintf(path, sizeof path, "/dev/nvidia%u", minor);
    if (!opens(path) || nvmlDeviceGetName(gpu, name, sizeof name) || nvmlDeviceGetUUID(gpu, uuid, sizeof uuid))
        return;
    printf("GPU %u: %s (%s)\n", index, name, uuid);
    if (nvmlDeviceGetMaxMigDeviceCount(gpu, &most))
        return;
    for (unsigned int number = 0; number < most; number++)
        if (!nvmlDeviceGetMigDeviceHandleByIndex(gpu, number, &mig))
            list_mig(mig);
}

int main(void)
{
    unsigned int count;
    if (nvmlInit_v2() || nvmlDeviceGetCount_v2(&count)) {
        fprintf(stderr, "the driver does not answer\n");
        return 1;
    }
    for (unsigned int index = 0; index < count; index++)
        list_gpu(index);
    return nvmlShutdown();
}
