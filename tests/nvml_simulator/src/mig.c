/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* MIG mode and GPU instances. */
#include "simulator.h"

#include <stdio.h>
#include <string.h>

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    BEGIN_GPU(device);
    REQUIRE(current && pending, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig != NONE, NVML_ERROR_NOT_SUPPORTED);
    *current = gpu->mig;
    *pending = gpu->mig_pending;
    END(NVML_SUCCESS);
}

static uint32_t instances_on(const struct gpu *gpu)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MAX_INSTANCES; i++)
        count += gpu->instance[i].birth != 0;
    return count;
}

/* Makes the pending mode the current one if the architecture and the clients allow it; says why not. */
static nvmlReturn_t activate(struct call *call, struct gpu *gpu)
{
    uint32_t index = gpu_index(call->machine, gpu);
    if (!gpu->mig_needs_reset) {
        if (gpu->mig_busy || gpu_has_work(call->machine, index))
            return NVML_ERROR_IN_USE;
        gpu->mig = gpu->mig_pending;
        return NVML_SUCCESS;
    }
    if (gpu->passthrough)
        return NVML_ERROR_RESET_REQUIRED;
    if (gpu->mig_busy || gpu_has_other_clients(call->machine, index, own_pid()))
        return NVML_ERROR_IN_USE;
    if (reset_together(call->machine, index) != 1u << index)
        return NVML_ERROR_RESET_REQUIRED; /* nobody is in the way: it takes a reset of more than this GPU */
    gpu_reset(gpu);
    return NVML_SUCCESS;
}

/* A mode that could not be activated stays pending: the call itself succeeds, `status` says what happened. */
EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *status)
{
    BEGIN_ROOT(device);
    REQUIRE(mode <= 1 && status, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig != NONE, NVML_ERROR_NOT_SUPPORTED);
    *status = NVML_SUCCESS;
    if (mode != gpu->mig && instances_on(gpu)) {
        *status = NVML_ERROR_IN_USE;
        END(NVML_ERROR_IN_USE);
    }
    clients_sweep(call.state);
    change_gpu(call.state, gpu);
    gpu->mig_pending = mode;
    if (mode != gpu->mig)
        *status = activate(&call, gpu);
    END(NVML_SUCCESS);
}

static struct profile *profile_by_enum(struct gpu *gpu, unsigned int number)
{
    for (struct profile *profile = gpu->profile; profile < gpu->profile + gpu->profile_count; profile++)
        if (profile->nvml_enum == number)
            return profile;
    return NULL;
}

static struct profile *profile_by_id(struct gpu *gpu, unsigned int id)
{
    for (struct profile *profile = gpu->profile; profile < gpu->profile + gpu->profile_count; profile++)
        if (profile->id == id)
            return profile;
    return NULL;
}

static nvmlReturn_t can_query(const struct call *call, const struct gpu *gpu)
{
    if (gpu->mig == NONE || (call->machine->system.mig_query_needs_mode && !gpu->mig))
        return NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* The enum runs from 0 until INVALID_ARGUMENT; what this GPU does not have is NOT_SUPPORTED in between. */
static nvmlReturn_t find_by_enum(const struct call *call, struct gpu *gpu, unsigned int number,
                                 struct profile **profile)
{
    if (number >= call->machine->system.gpu_instance_enums)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = can_query(call, gpu);
    if (result != NVML_SUCCESS)
        return result;
    *profile = profile_by_enum(gpu, number);
    return *profile ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

#define FILL_COUNTS(info, profile)                                                                   \
    (info)->id = (profile)->id, (info)->slice_count = (profile)->compute_slices,                      \
    (info)->instance_count = (profile)->max_instances,                                                \
    (info)->multiprocessor_count = (profile)->multiprocessors,                                        \
    (info)->copy_engine_count = (profile)->copy_engines, (info)->decoder_count = (profile)->decoders, \
    (info)->encoder_count = (profile)->encoders, (info)->jpeg_count = (profile)->jpeg,                \
    (info)->ofa_count = (profile)->ofa, (info)->memory_mib = (profile)->memory_mib

static nvmlReturn_t fill_versioned(void *out, const struct profile *profile)
{
    enum { CAPABILITY_P2P = 1, CAPABILITY_GRAPHICS = 2 };
    nvmlGpuInstanceProfileInfo_v2_t *v2 = out;
    nvmlGpuInstanceProfileInfo_v3_t *v3 = out;
    if (v2->version == VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        FILL_COUNTS(v2, profile);
        v2->version = 0; /* the real one clears it */
        v2->is_p2p_supported = profile->p2p;
        snprintf(v2->name, sizeof v2->name, "MIG %s", profile->name);
        return NVML_SUCCESS;
    }
    if (v3->version == VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3)) {
        FILL_COUNTS(v3, profile);
        v3->capabilities = (profile->p2p ? CAPABILITY_P2P : 0u) |
                           (strcmp(profile->attributes, "gfx") == 0 ? CAPABILITY_GRAPHICS : 0u);
        snprintf(v3->name, sizeof v3->name, "MIG %s", profile->name);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number,
                                                        nvmlGpuInstanceProfileInfo_t *info)
{
    struct profile *profile;
    BEGIN_TARGET(device, DEVICE, false);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    begun = find_by_enum(&call, gpu, number, &profile);
    REQUIRE(begun == NVML_SUCCESS, begun);
    FILL_COUNTS(info, profile);
    info->is_p2p_supported = profile->p2p;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int number, void *info)
{
    struct profile *profile;
    BEGIN_GPU(device);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    begun = find_by_enum(&call, gpu, number, &profile);
    REQUIRE(begun == NVML_SUCCESS, begun);
    END(fill_versioned(info, profile));
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id, void *info)
{
    BEGIN_GPU(device);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    begun = can_query(&call, gpu);
    REQUIRE(begun == NVML_SUCCESS, begun);
    struct profile *profile = profile_by_id(gpu, id);
    REQUIRE(profile, NVML_ERROR_INVALID_ARGUMENT);
    END(fill_versioned(info, profile));
}

/* Needs the mig/config capability, which is root's by default. */
#define BEGIN_CONFIG(device, id, change)                       \
    BEGIN_TARGET(device, DEVICE, change);                      \
    REQUIRE(is_root(), NVML_ERROR_NO_PERMISSION);              \
    REQUIRE(gpu->mig != NONE, NVML_ERROR_NOT_SUPPORTED);       \
    struct profile *profile = profile_by_id(gpu, id)

/* Of a profile id that this GPU lacks: some other GPU has it, or no GPU. */
static nvmlReturn_t lacks(const struct machine *machine, unsigned int id)
{
    for (uint32_t i = 0; i < machine->system.gpu_instance_ids.count; i++)
        if (machine->system.gpu_instance_ids.item[i] == id)
            return NVML_ERROR_NOT_SUPPORTED;
    return NVML_ERROR_INVALID_ARGUMENT;
}

/* What is possible, not what is free: neither the mode nor existing instances matter. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
                                                                  nvmlPlacement_t *placements, unsigned int *count)
{
    BEGIN_CONFIG(device, id, false);
    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(profile, lacks(call.machine, id));
    *count = profile->starts.count;
    for (uint32_t i = 0; placements && i < profile->starts.count; i++)
        placements[i] = (nvmlPlacement_t){profile->starts.item[i], profile->memory_slices};
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int id,
                                                               nvmlPlacement_t *placements, unsigned int *count)
{
    return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, placements, count);
}

static uint32_t slices_at(uint32_t start, uint32_t size)
{
    return ((1u << size) - 1) << start;
}

static uint32_t slices_taken(const struct gpu *gpu)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < MAX_INSTANCES; i++)
        if (gpu->instance[i].birth)
            taken |= slices_at(gpu->instance[i].start, gpu->profile[gpu->instance[i].profile].memory_slices);
    return taken;
}

static uint32_t instances_of(const struct gpu *gpu, const struct profile *profile)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MAX_INSTANCES; i++)
        count += gpu->instance[i].birth && &gpu->profile[gpu->instance[i].profile] == profile;
    return count;
}

/* Also with MIG off. As the real one overstates it: placements that do not overlap, one after the other; compute slices
 * and media engines that others hold are not looked at. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count)
{
    BEGIN_CONFIG(device, id, false);
    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(profile, lacks(call.machine, id));
    uint32_t taken = slices_taken(gpu), fit = 0;
    for (uint32_t i = 0; i < profile->starts.count; i++) {
        uint32_t wanted = slices_at(profile->starts.item[i], profile->memory_slices);
        if (taken & wanted)
            continue;
        taken |= wanted;
        fit++;
    }
    uint32_t left = profile->max_instances - instances_of(gpu, profile);
    END(put_u32(count, fit < left ? fit : left));
}

static bool is(const struct profile *profile, const char *attribute)
{
    return strcmp(profile->attributes, attribute) == 0;
}

/* Whether the media engines allow both: there is one set of extensions, and me.all leaves nothing for others. */
static bool media_conflict(const struct profile *one, const struct profile *other)
{
    if (is(one, "me.all"))
        return !is(other, "-me");
    if (is(other, "me.all"))
        return !is(one, "-me");
    return is(one, "me") && is(other, "me");
}

/* Whether one more instance of the profile may exist, wherever it lies. */
static bool has_resources(const struct call *call, const struct gpu *gpu, const struct profile *profile)
{
    uint32_t slices = profile->compute_slices;
    for (uint32_t i = 0; i < MAX_INSTANCES; i++) {
        if (!gpu->instance[i].birth)
            continue;
        const struct profile *other = &gpu->profile[gpu->instance[i].profile];
        uint32_t pair = profile->compute_slices * 10 + other->compute_slices;
        slices += other->compute_slices;
        if (media_conflict(profile, other))
            return false;
        if ((pair == 34 || pair == 43) && !call->machine->system.mig_3g_beside_4g)
            return false;
    }
    return slices <= gpu->compute_slices && instances_of(gpu, profile) < profile->max_instances;
}

/* Ids are numbered as a heap over the memory (whole, halves, quarters, eighths); some GPUs count the halves the other
 * way round. */
static uint32_t id_at(const struct gpu *gpu, uint32_t start, uint32_t size)
{
    if (gpu->swap_halves && size < gpu->memory_slices)
        start ^= gpu->memory_slices / 2;
    return gpu->memory_slices / size - 1 + start / size;
}

static bool device_is_used_as_a_whole(const struct machine *machine, uint32_t gpu)
{
    for (const struct client *client = machine->client; client < machine->client + MAX_CLIENTS; client++)
        if (client->id && client->kind != MONITOR && client->gpu == gpu && client->gpu_instance == NONE)
            return true;
    return false;
}

static nvmlReturn_t create(struct call *call, struct gpu *gpu, const struct profile *profile,
                           const nvmlPlacement_t *placement, nvmlGpuInstance_t *handle)
{
    uint32_t taken = slices_taken(gpu), start = NONE;
    if (!gpu->mig || gpu->virtualization_mode == VGPU_GUEST)
        return NVML_ERROR_NOT_SUPPORTED;
    for (uint32_t i = 0; i < profile->default_order.count && start == NONE; i++) {
        uint32_t candidate = profile->default_order.item[i];
        bool wanted = !placement || placement->start == candidate;
        if (wanted && (placement || !(taken & slices_at(candidate, profile->memory_slices))))
            start = candidate;
    }
    if (placement && (start == NONE || placement->size != profile->memory_slices))
        return NVML_ERROR_INVALID_ARGUMENT;
    clients_sweep(call->state);
    if (device_is_used_as_a_whole(call->machine, gpu_index(call->machine, gpu)))
        return NVML_ERROR_IN_USE;
    if (start == NONE || taken & slices_at(start, profile->memory_slices) || !has_resources(call, gpu, profile))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    struct target made = {.gpu = gpu, .instance = &gpu->instance[id_at(gpu, start, profile->memory_slices)]};
    change_gpu(call->state, gpu);
    made.instance->profile = (uint32_t)(profile - gpu->profile);
    made.instance->start = start;
    made.instance->birth = ++call->machine->system.births;
    *handle = handle_of(call->machine, GPU_INSTANCE, &made);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
    BEGIN_CONFIG(device, id, true);
    REQUIRE(profile && instance, NVML_ERROR_INVALID_ARGUMENT);
    END(create(&call, gpu, profile, NULL, instance));
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
                                                             const nvmlPlacement_t *placement,
                                                             nvmlGpuInstance_t *instance)
{
    BEGIN_CONFIG(device, id, true);
    REQUIRE(profile && placement && instance, NVML_ERROR_INVALID_ARGUMENT);
    END(create(&call, gpu, profile, placement, instance));
}

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle)
{
    BEGIN_TARGET(handle, GPU_INSTANCE, true);
    REQUIRE(is_root(), NVML_ERROR_NO_PERMISSION);
    clients_sweep(call.state);
    for (uint32_t i = 0; i < MAX_COMPUTE; i++)
        REQUIRE(!target.instance->compute[i].birth, NVML_ERROR_IN_USE);
    for (struct client *client = call.machine->client; client < call.machine->client + MAX_CLIENTS; client++)
        REQUIRE(!client->id || client->gpu != call.gpu || client->gpu_instance != instance_id(&target),
                NVML_ERROR_IN_USE);
    change_gpu(call.state, gpu);
    memset(target.instance, 0, sizeof *target.instance);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instances,
                                              unsigned int *count)
{
    BEGIN_CONFIG(device, id, false);
    REQUIRE(profile && instances && count, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig, NVML_ERROR_NOT_SUPPORTED);
    *count = 0;
    for (uint32_t i = 0; i < MAX_INSTANCES; i++) {
        target.instance = &gpu->instance[i];
        if (target.instance->birth && &gpu->profile[target.instance->profile] == profile)
            instances[(*count)++] = handle_of(call.machine, GPU_INSTANCE, &target);
    }
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
    BEGIN_GPU(device);
    REQUIRE(instance, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(is_root(), NVML_ERROR_NO_PERMISSION);
    REQUIRE(gpu->mig != NONE, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(id < MAX_INSTANCES && gpu->instance[id].birth, NVML_ERROR_NOT_FOUND);
    target.instance = &gpu->instance[id];
    *instance = handle_of(call.machine, GPU_INSTANCE, &target);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info)
{
    BEGIN_TARGET(handle, GPU_INSTANCE, false);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    const struct profile *profile = &gpu->profile[target.instance->profile];
    info->device = handle_of(call.machine, DEVICE, &target);
    info->id = instance_id(&target);
    info->profile_id = profile->id;
    info->placement = (nvmlPlacement_t){target.instance->start, profile->memory_slices};
    END(NVML_SUCCESS);
}
