/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* Where a GPU sits: CPUs and memory next to it, the way to other GPUs. */
#include "simulator.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64

enum { SINGLE = 10, HOSTBRIDGE = 30, NODE = 40, SYSTEM = 50 };
enum { SCOPE_NODE = 0, SCOPE_SOCKET = 1 };

/* Sets the bits of a list as the kernel writes it ("0-3,8"), except those beyond `words`; gives how many it names. */
static unsigned int cpulist_bits(const char *list, unsigned long *bits, unsigned int words)
{
    unsigned int count = 0;
    memset(bits, 0, words * sizeof *bits);
    while (*list) {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (end == list)
            break;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long bit = first; bit <= last; bit++, count++)
            if (bit / WORD_BITS < words)
                bits[bit / WORD_BITS] |= 1ul << bit % WORD_BITS;
        list = *end == ',' ? end + 1 : end;
    }
    return count;
}

static nvmlReturn_t put_bits(unsigned long *bits, unsigned int words, const char *list)
{
    if (!bits || words == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    return cpulist_bits(list, bits, words) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words, unsigned long *bits,
                                                        unsigned int scope)
{
    BEGIN_GPU(device);
    REQUIRE(scope <= SCOPE_SOCKET, NVML_ERROR_INVALID_ARGUMENT);
    END(put_bits(bits, words, scope == SCOPE_NODE ? gpu->cpus : gpu->cpus_of_socket));
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *bits)
{
    BEGIN_GPU(device);
    END(put_bits(bits, words, gpu->cpus));
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *bits,
                                                unsigned int scope)
{
    BEGIN_GPU(device);
    REQUIRE(scope <= SCOPE_SOCKET && bits && words, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->cpu_node != NONE, NVML_ERROR_NOT_SUPPORTED);
    if (scope == SCOPE_SOCKET)
        END(put_bits(bits, words, gpu->cpu_nodes_of_socket));
    memset(bits, 0, words * sizeof *bits);
    if (gpu->cpu_node / WORD_BITS < words)
        bits[gpu->cpu_node / WORD_BITS] = 1ul << gpu->cpu_node % WORD_BITS;
    END(NVML_SUCCESS);
}

/* Binds the calling thread in the real one; here it is only answered. */
EXPORT nvmlReturn_t nvmlDeviceSetCpuAffinity(nvmlDevice_t device)
{
    BEGIN_GPU(device);
    END(gpu->cpus[0] ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlDeviceClearCpuAffinity(nvmlDevice_t device)
{
    BEGIN_GPU(device);
    (void)gpu;
    END(NVML_SUCCESS);
}

static unsigned int level_between(const struct gpu *one, const struct gpu *other)
{
    if (one->pci_switch == other->pci_switch && one->pci_switch != NONE)
        return SINGLE;
    if (one->pci_root == other->pci_root && one->pci_root != NONE)
        return HOSTBRIDGE;
    return one->cpu_node == other->cpu_node ? NODE : SYSTEM;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, unsigned int *level)
{
    BEGIN_GPU(one);
    struct target second;
    begun = resolve(&call, other, DEVICE, &second);
    REQUIRE(begun == NVML_SUCCESS, begun);
    /* Recorded: what is passed through has no way to itself. */
    REQUIRE(gpu != second.gpu || !gpu->passthrough, NVML_ERROR_NOT_SUPPORTED);
    END(put_u32(level, gpu == second.gpu ? 0 : level_between(gpu, second.gpu)));
}

static nvmlReturn_t put_gpus(struct call *call, const bool *wanted, unsigned int *count, nvmlDevice_t *devices)
{
    uint32_t found = 0;
    if (!count || (*count && !devices))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t index = 0; index < call->machine->system.gpu_count; index++) {
        struct target target = {.gpu = &call->machine->gpu[index]};
        if (!wanted[index])
            continue;
        if (*count && found < *count)
            devices[found] = handle_of(call->machine, DEVICE, &target);
        found++;
    }
    if (*count == 0 || found < *count)
        *count = found;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned int level, unsigned int *count,
                                                     nvmlDevice_t *devices)
{
    bool wanted[MAX_GPUS] = {false};
    BEGIN_GPU(device);
    REQUIRE(level <= SYSTEM && level % 10 == 0, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t index = 0; index < call.machine->system.gpu_count; index++) {
        const struct gpu *other = &call.machine->gpu[index];
        wanted[index] = other != gpu && level_between(gpu, other) == level;
    }
    END(put_gpus(&call, wanted, count, devices));
}

EXPORT nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count, nvmlDevice_t *devices)
{
    bool wanted[MAX_GPUS] = {false};
    unsigned long bits[MAX_CPUS / WORD_BITS];
    BEGIN(false);
    REQUIRE(cpu < MAX_CPUS, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t index = 0; index < call.machine->system.gpu_count; index++) {
        cpulist_bits(call.machine->gpu[index].cpus, bits, MAX_CPUS / WORD_BITS);
        wanted[index] = bits[cpu / WORD_BITS] >> cpu % WORD_BITS & 1;
    }
    END(put_gpus(&call, wanted, count, devices));
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, unsigned int index,
                                           unsigned int *status)
{
    enum { READ, WRITE, NVLINK, ATOMICS, PCI };
    enum { OK = 0, NOT_SUPPORTED = 5 };
    BEGIN_GPU(one);
    struct target second;
    begun = resolve(&call, other, DEVICE, &second);
    REQUIRE(begun == NVML_SUCCESS, begun);
    REQUIRE(index <= PCI, NVML_ERROR_INVALID_ARGUMENT);
    bool linked = gpu->nvlink_state.count && second.gpu->nvlink_state.count && gpu->nvlink_state.item[0] &&
                  second.gpu->nvlink_state.item[0];
    bool mig = gpu->mig == 1 || second.gpu->mig == 1;
    bool works = index == PCI ? level_between(gpu, second.gpu) < SYSTEM : linked;
    END(put_u32(status, gpu != second.gpu && works && !mig ? OK : NOT_SUPPORTED));
}
