/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* The device files that a client of the driver has open, where there are any: by them it is found in /proc. */
#include "simulator.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Of this process: nvidiactl, and one for each GPU. */
static int files[MAX_GPUS + 1];
static unsigned int opened;

static void open_one(const char *name)
{
    char path[4096];
    const char *folder = getenv("NVML_SIM_DEV");
    snprintf(path, sizeof path, "%s/%s", folder && *folder ? folder : "/dev", name);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0)
        files[opened++] = file;
}

void devices_open(const struct machine *machine)
{
    devices_close();
    open_one("nvidiactl");
    for (uint32_t gpu = 0; gpu < machine->system.gpu_count; gpu++) {
        char name[32];
        snprintf(name, sizeof name, "nvidia%u", machine->gpu[gpu].minor_number);
        open_one(name);
    }
}

void devices_close(void)
{
    while (opened > 0)
        close(files[--opened]);
}
