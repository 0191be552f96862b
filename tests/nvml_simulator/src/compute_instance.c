/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* Compute instances: the slices of a GPU instance that processes run on. */
#include "simulator.h"

#include <stdio.h>
#include <string.h>

static const struct profile *profile_of(const struct target *target)
{
    return &target->gpu->profile[target->instance->profile];
}

/* The compute profiles which fit into this GPU instance; NULL after the last. */
static struct compute_profile *next_profile(struct machine *machine, const struct target *target,
                                            struct compute_profile *after)
{
    struct compute_profile *profile = after ? after + 1 : machine->compute_profile;
    for (; profile < machine->compute_profile + MAX_COMPUTE_PROFILES && profile->slices; profile++)
        if (profile->of_slices == profile_of(target)->compute_slices)
            return profile;
    return NULL;
}

static struct compute_profile *profile_by_id(struct machine *machine, const struct target *target, unsigned int id)
{
    struct compute_profile *profile = next_profile(machine, target, NULL);
    while (profile && profile->id != id)
        profile = next_profile(machine, target, profile);
    return profile;
}

static const char *name_of(const struct target *target, const struct compute_profile *profile, char *name, size_t size)
{
    const struct profile *parent = profile_of(target);
    if (profile->slices == parent->compute_slices)
        snprintf(name, size, "%s", parent->name);
    else
        snprintf(name, size, "%uc.%s", profile->slices, parent->name);
    return name;
}

/* The name of a MIG device's profile, such as 1g.10gb or 1c.3g.40gb. */
const char *profile_name(const struct machine *machine, const struct target *target, char *name, size_t size)
{
    return name_of(target, &machine->compute_profile[target->compute->profile], name, size);
}

/* A part has as many multiprocessors as its slices have in the smallest instance of the GPU. */
uint32_t compute_multiprocessors(const struct target *target, uint32_t slices)
{
    const struct profile *parent = profile_of(target), *smallest = target->gpu->profile;
    if (slices == parent->compute_slices)
        return parent->multiprocessors;
    for (uint32_t i = 1; i < target->gpu->profile_count; i++)
        if (target->gpu->profile[i].compute_slices == 1 &&
            target->gpu->profile[i].multiprocessors < smallest->multiprocessors)
            smallest = &target->gpu->profile[i];
    return smallest->multiprocessors * slices;
}

#define FILL_COUNTS(info, target, profile)                                                                         \
    (info)->id = (profile)->id, (info)->slice_count = (profile)->slices,                                            \
    (info)->instance_count = (profile)->max_instances,                                                              \
    (info)->multiprocessor_count = compute_multiprocessors(target, (profile)->slices),                              \
    (info)->copy_engine_count = profile_of(target)->copy_engines,                                                  \
    (info)->decoder_count = profile_of(target)->decoders, (info)->encoder_count = profile_of(target)->encoders,    \
    (info)->jpeg_count = profile_of(target)->jpeg,                                                                 \
    (info)->ofa_count = profile_of(target)->ofa

/* The same loop as for GPU instances: from 0 until INVALID_ARGUMENT. */
static nvmlReturn_t find_by_enum(const struct call *call, const struct target *target, unsigned int number,
                                 unsigned int engine, struct compute_profile **found)
{
    enum { ENGINE_SHARED = 0 };
    if (number >= call->machine->system.compute_instance_enums || engine != ENGINE_SHARED)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct compute_profile *profile = next_profile(call->machine, target, NULL);
    while (profile && profile->nvml_enum != number)
        profile = next_profile(call->machine, target, profile);
    *found = profile;
    return profile ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle, unsigned int number,
                                                                 unsigned int engine,
                                                                 nvmlComputeInstanceProfileInfo_t *info)
{
    struct compute_profile *profile;
    BEGIN_TARGET(handle, GPU_INSTANCE, false);
    (void)gpu;
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    begun = find_by_enum(&call, &target, number, engine, &profile);
    REQUIRE(begun == NVML_SUCCESS, begun);
    FILL_COUNTS(info, &target, profile);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned int number,
                                                                  unsigned int engine, void *info)
{
    struct compute_profile *profile;
    char name[48];
    nvmlComputeInstanceProfileInfo_v2_t *v2 = info;
    nvmlComputeInstanceProfileInfo_v3_t *v3 = info;
    BEGIN_TARGET(handle, GPU_INSTANCE, false);
    (void)gpu;
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    begun = find_by_enum(&call, &target, number, engine, &profile);
    REQUIRE(begun == NVML_SUCCESS, begun);
    name_of(&target, profile, name, sizeof name);
    if (v2->version == VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2)) {
        FILL_COUNTS(v2, &target, profile);
        snprintf(v2->name, sizeof v2->name, "MIG %s", name);
        END(NVML_SUCCESS);
    }
    REQUIRE(v3->version == VERSION(nvmlComputeInstanceProfileInfo_v3_t, 3), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    FILL_COUNTS(v3, &target, profile);
    snprintf(v3->name, sizeof v3->name, "MIG %s", name);
    v3->capabilities = 0;
    END(NVML_SUCCESS);
}

static uint32_t slices_at(uint32_t start, uint32_t size)
{
    return ((1u << size) - 1) << start;
}

static uint32_t slices_taken(const struct machine *machine, const struct instance *instance)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < MAX_COMPUTE; i++)
        if (instance->compute[i].birth)
            taken |= slices_at(instance->compute[i].start,
                               machine->compute_profile[instance->compute[i].profile].slices);
    return taken;
}

#define BEGIN_CONFIG(handle, id, change)                                             \
    BEGIN_TARGET(handle, GPU_INSTANCE, change);                                      \
    REQUIRE(is_root(), NVML_ERROR_NO_PERMISSION);                                    \
    struct compute_profile *profile = profile_by_id(call.machine, &target, id);      \
    (void)gpu

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t handle, unsigned int id,
                                                                       unsigned int *count)
{
    BEGIN_CONFIG(handle, id, false);
    REQUIRE(profile && count, NVML_ERROR_INVALID_ARGUMENT);
    uint32_t taken = slices_taken(call.machine, target.instance), fit = 0;
    for (uint32_t i = 0; i < profile->starts.count; i++)
        fit += (taken & slices_at(profile->starts.item[i], profile->slices)) == 0;
    END(put_u32(count, fit));
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t handle, unsigned int id,
                                                                        nvmlPlacement_t *placements,
                                                                        unsigned int *count)
{
    BEGIN_CONFIG(handle, id, false);
    REQUIRE(profile && count, NVML_ERROR_INVALID_ARGUMENT);
    *count = profile->starts.count;
    for (uint32_t i = 0; placements && i < profile->starts.count; i++)
        placements[i] = (nvmlPlacement_t){profile->starts.item[i], profile->slices};
    END(NVML_SUCCESS);
}

/* MIG devices are numbered over the whole GPU, the first free number first: one that goes leaves a hole. */
static uint32_t free_mig_index(const struct gpu *gpu)
{
    uint64_t taken = 0;
    for (uint32_t i = 0; i < MAX_INSTANCES * MAX_COMPUTE; i++) {
        const struct compute *compute = &gpu->instance[i / MAX_COMPUTE].compute[i % MAX_COMPUTE];
        if (compute->birth)
            taken |= 1ull << compute->mig_index;
    }
    uint32_t index = 0;
    while (taken >> index & 1)
        index++;
    return index;
}

static nvmlReturn_t create(struct call *call, struct target *target, const struct compute_profile *profile,
                           const nvmlPlacement_t *placement, nvmlComputeInstance_t *handle)
{
    uint32_t taken = slices_taken(call->machine, target->instance), start = NONE;
    for (uint32_t i = 0; i < profile->starts.count && start == NONE; i++) {
        uint32_t candidate = profile->starts.item[i];
        bool wanted = !placement || placement->start == candidate;
        if (wanted && (placement || !(taken & slices_at(candidate, profile->slices))))
            start = candidate;
    }
    if (placement && (start == NONE || placement->size != profile->slices))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (start == NONE || taken & slices_at(start, profile->slices))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    uint32_t id = 0;
    while (target->instance->compute[id].birth) /* there are more ids than slices */
        id++;
    target->compute = &target->instance->compute[id];
    change_gpu(call->state, target->gpu);
    target->compute->profile = (uint32_t)(profile - call->machine->compute_profile);
    target->compute->start = start;
    target->compute->mig_index = free_mig_index(target->gpu);
    target->compute->birth = ++call->machine->system.births;
    *handle = handle_of(call->machine, COMPUTE_INSTANCE, target);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned int id,
                                                         nvmlComputeInstance_t *instance)
{
    BEGIN_CONFIG(handle, id, true);
    REQUIRE(profile && instance, NVML_ERROR_INVALID_ARGUMENT);
    END(create(&call, &target, profile, NULL, instance));
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t handle, unsigned int id,
                                                                      const nvmlPlacement_t *placement,
                                                                      nvmlComputeInstance_t *instance)
{
    BEGIN_CONFIG(handle, id, true);
    REQUIRE(profile && placement && instance, NVML_ERROR_INVALID_ARGUMENT);
    END(create(&call, &target, profile, placement, instance));
}

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle)
{
    BEGIN_TARGET(handle, COMPUTE_INSTANCE, true);
    REQUIRE(is_root(), NVML_ERROR_NO_PERMISSION);
    clients_sweep(call.state);
    for (struct client *client = call.machine->client; client < call.machine->client + MAX_CLIENTS; client++) {
        bool inside = client->id && client->gpu == call.gpu && client->gpu_instance == instance_id(&target);
        REQUIRE(!inside || (client->compute_instance != NONE && client->compute_instance != compute_id(&target)),
                NVML_ERROR_IN_USE);
    }
    change_gpu(call.state, gpu);
    memset(target.compute, 0, sizeof *target.compute);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned int id,
                                                       nvmlComputeInstance_t *instances, unsigned int *count)
{
    BEGIN_CONFIG(handle, id, false);
    REQUIRE(profile && instances && count, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    for (uint32_t i = 0; i < MAX_COMPUTE; i++) {
        target.compute = &target.instance->compute[i];
        if (target.compute->birth && &call.machine->compute_profile[target.compute->profile] == profile)
            instances[(*count)++] = handle_of(call.machine, COMPUTE_INSTANCE, &target);
    }
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned int id,
                                                          nvmlComputeInstance_t *instance)
{
    BEGIN_TARGET(handle, GPU_INSTANCE, false);
    (void)gpu;
    REQUIRE(instance, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(is_root(), NVML_ERROR_NO_PERMISSION);
    REQUIRE(id < MAX_COMPUTE && target.instance->compute[id].birth, NVML_ERROR_NOT_FOUND);
    target.compute = &target.instance->compute[id];
    *instance = handle_of(call.machine, COMPUTE_INSTANCE, &target);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info)
{
    BEGIN_TARGET(handle, COMPUTE_INSTANCE, false);
    (void)gpu;
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    const struct compute_profile *profile = &call.machine->compute_profile[target.compute->profile];
    info->device = handle_of(call.machine, DEVICE, &target);
    info->gpu_instance = handle_of(call.machine, GPU_INSTANCE, &target);
    info->id = compute_id(&target);
    info->profile_id = profile->id;
    info->placement = (nvmlPlacement_t){target.compute->start, profile->slices};
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info)
{
    return nvmlComputeInstanceGetInfo_v2(handle, info);
}
