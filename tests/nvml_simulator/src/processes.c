/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* The processes on a GPU or a MIG device. */
#include "simulator.h"

#include <string.h>

#define MIB (1024ull * 1024)

static bool is_shown(const struct client *client, const struct target *target, uint32_t gpu, enum client_kind kind)
{
    if (!client->id || client->gpu != gpu || client->kind != kind)
        return false;
    if (!target->compute)
        return true;
    return client->gpu_instance == instance_id(target) &&
           (client->compute_instance == NONE || client->compute_instance == compute_id(target));
}

/* Fills `infos` when there is room for all; else only tells how many there are. `old` is the layout without ids. */
static nvmlReturn_t put_processes(struct call *call, const struct target *target, enum client_kind kind,
                                  unsigned int *count, void *infos, bool old)
{
    nvmlProcessInfo_t *info = infos;
    nvmlProcessInfo_v1_t *old_info = infos;
    uint32_t found = 0, gpu = gpu_index(call->machine, target->gpu);
    if (!count || (*count && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    clients_sweep(call->state);
    for (struct client *client = call->machine->client; client < call->machine->client + MAX_CLIENTS; client++) {
        if (!is_shown(client, target, gpu, kind))
            continue;
        if (found < *count && old)
            old_info[found] = (nvmlProcessInfo_v1_t){client->pid, client->memory_mib * MIB};
        else if (found < *count)
            info[found] = (nvmlProcessInfo_t){client->pid, client->memory_mib * MIB, client->gpu_instance,
                                              client->compute_instance};
        found++;
    }
    bool fits = found <= *count;
    *count = found;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

#define PROCESSES(symbol, kind, old)                                                        \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, void *infos)       \
    {                                                                                       \
        BEGIN_ANY_DEVICE(device);                                                           \
        (void)gpu;                                                                          \
        END(put_processes(&call, &target, kind, count, infos, old));                        \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, COMPUTE, true)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, false)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, false)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, true)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, false)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, false)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, MPS, true)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, false)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, false)

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list)
{
    static const enum client_kind kinds[] = {COMPUTE, GRAPHICS, MPS}; /* in the order of the modes */
    BEGIN_ANY_DEVICE(device);
    REQUIRE(list, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(list->version == VERSION(nvmlProcessDetailList_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(list->mode < sizeof kinds / sizeof kinds[0], NVML_ERROR_INVALID_ARGUMENT);
    uint32_t found = 0, room = list->processes ? list->count : 0;
    clients_sweep(call.state);
    for (struct client *client = call.machine->client; client < call.machine->client + MAX_CLIENTS; client++) {
        if (!is_shown(client, &target, gpu_index(call.machine, gpu), kinds[list->mode]))
            continue;
        if (found < room)
            list->processes[found] = (nvmlProcessDetail_v1_t){client->pid, client->memory_mib * MIB,
                                                              client->gpu_instance, client->compute_instance, 0};
        found++;
    }
    list->count = found;
    END(found <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    BEGIN_GPU(device);
    REQUIRE(utilization, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig != 1, NVML_ERROR_NOT_SUPPORTED);
    *utilization = (nvmlUtilization_t){gpu->utilization_gpu, gpu->utilization_memory};
    END(NVML_SUCCESS);
}

/* No process used anything since then. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, void *samples, unsigned int *count,
                                                    unsigned long long since)
{
    (void)samples, (void)since;
    BEGIN_GPU(device);
    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig != 1, NVML_ERROR_NOT_SUPPORTED);
    *count = 0;
    END(NVML_ERROR_NOT_FOUND);
}

#define MEDIA_UTILIZATION(symbol)                                                                     \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *percent, unsigned int *period_usec) \
    {                                                                                                 \
        BEGIN_GPU(device);                                                                            \
        REQUIRE(percent && period_usec, NVML_ERROR_INVALID_ARGUMENT);                                 \
        REQUIRE(gpu->mig != 1, NVML_ERROR_NOT_SUPPORTED);                                             \
        *percent = 0;                                                                                 \
        *period_usec = gpu->architecture >= ARCH_HOPPER ? 100000 : 167000;                            \
        END(NVML_SUCCESS);                                                                            \
    }

MEDIA_UTILIZATION(nvmlDeviceGetEncoderUtilization)
MEDIA_UTILIZATION(nvmlDeviceGetDecoderUtilization)
MEDIA_UTILIZATION(nvmlDeviceGetJpgUtilization)
MEDIA_UTILIZATION(nvmlDeviceGetOfaUtilization)
