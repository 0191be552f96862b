/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* Handles: 4 bits of kind, the GPU, the instances, and the stamp which tells an old handle from a new one. */
#include "simulator.h"

#define KIND_SHIFT 60
#define GPU_SHIFT 52
#define INSTANCE_SHIFT 44
#define COMPUTE_SHIFT 36

uint32_t gpu_index(const struct machine *machine, const struct gpu *gpu)
{
    return (uint32_t)(gpu - machine->gpu);
}

uint32_t instance_id(const struct target *target)
{
    return (uint32_t)(target->instance - target->gpu->instance);
}

uint32_t compute_id(const struct target *target)
{
    return (uint32_t)(target->compute - target->instance->compute);
}

uintptr_t handle_of(struct machine *machine, enum handle_kind kind, const struct target *target)
{
    uint64_t handle = (uint64_t)kind << KIND_SHIFT | (uint64_t)gpu_index(machine, target->gpu) << GPU_SHIFT;
    if (kind == DEVICE)
        return (uintptr_t)(handle | target->gpu->generation);
    handle |= (uint64_t)instance_id(target) << INSTANCE_SHIFT;
    if (kind == GPU_INSTANCE)
        return (uintptr_t)(handle | target->instance->birth);
    return (uintptr_t)(handle | (uint64_t)compute_id(target) << COMPUTE_SHIFT | target->compute->birth);
}

static nvmlReturn_t find(struct call *call, uint64_t handle, struct target *target)
{
    uint32_t gpu = handle >> GPU_SHIFT & 0xff;
    uint32_t instance = handle >> INSTANCE_SHIFT & 0xff;
    uint32_t compute = handle >> COMPUTE_SHIFT & 0xff;
    uint32_t stamp = (uint32_t)handle;
    uint32_t kind = (uint32_t)(handle >> KIND_SHIFT);
    *target = (struct target){0};
    if (kind < DEVICE || kind > MIG_DEVICE || gpu >= call->machine->system.gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    target->gpu = &call->machine->gpu[gpu];
    call->gpu = gpu;
    if (target->gpu->lost)
        return NVML_ERROR_GPU_IS_LOST;
    if (kind == DEVICE)
        return target->gpu->generation == stamp ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    if (instance >= MAX_INSTANCES || compute >= MAX_COMPUTE)
        return NVML_ERROR_INVALID_ARGUMENT;
    target->instance = &target->gpu->instance[instance];
    if (kind == GPU_INSTANCE)
        return target->instance->birth == stamp && stamp ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    target->compute = &target->instance->compute[compute];
    return target->compute->birth == stamp && stamp ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* A call about a whole GPU answers NOT_SUPPORTED for a MIG device; any other mix of kinds is a wrong argument. */
nvmlReturn_t resolve(struct call *call, uintptr_t handle, enum handle_kind kind, struct target *target)
{
    nvmlReturn_t result = find(call, handle, target);
    uint32_t found = (uint32_t)((uint64_t)handle >> KIND_SHIFT);
    if (result != NVML_SUCCESS || found == kind)
        return result;
    return kind == DEVICE && found == MIG_DEVICE ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

/* A GPU or a MIG device; target->compute tells which. */
nvmlReturn_t resolve_device(struct call *call, uintptr_t handle, struct target *target)
{
    uint32_t found = (uint32_t)((uint64_t)handle >> KIND_SHIFT);
    if (found != DEVICE && found != MIG_DEVICE)
        return NVML_ERROR_INVALID_ARGUMENT;
    return find(call, handle, target);
}
