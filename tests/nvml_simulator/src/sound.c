/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* Which machines make sense, whoever wrote the state: no call has to ask then before it divides, counts or indexes. */
#include "simulator.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_SLICES 8

/* Numbers and ranges below MAX_CPUS with commas between them, as the kernel writes a list; or nothing. */
static bool is_list(const char *text)
{
    while (*text) {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*text < '0' || *text > '9')
            return false;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (first > last || last >= MAX_CPUS || (*end && *end != ','))
            return false;
        text = *end ? end + 1 : end;
    }
    return true;
}

static bool is_mode(uint32_t mode)
{
    return mode <= 1 || mode == NONE;
}

static bool fits(uint32_t start, uint32_t size, uint32_t slices)
{
    return size >= 1 && size <= slices && start <= slices - size;
}

static bool clocks_are_sound(const struct gpu *gpu)
{
    if (gpu->graphics_clock_max == NONE)
        return true;
    return gpu->graphics_clock_max > 0 && gpu->graphics_clock_min <= gpu->graphics_clock_max;
}

static bool profile_is_sound(const struct gpu *gpu, const struct profile *profile)
{
    bool sound = profile->compute_slices >= 1 && profile->compute_slices <= gpu->compute_slices;
    for (uint32_t i = 0; sound && i < profile->starts.count; i++)
        sound = fits(profile->starts.item[i], profile->memory_slices, gpu->memory_slices);
    for (uint32_t i = 0; sound && i < profile->default_order.count; i++)
        sound = fits(profile->default_order.item[i], profile->memory_slices, gpu->memory_slices);
    return sound && fits(0, profile->memory_slices, gpu->memory_slices);
}

static bool instance_is_sound(const struct machine *machine, const struct gpu *gpu, const struct instance *instance)
{
    if (!instance->birth)
        return true;
    if (instance->profile >= gpu->profile_count ||
        !fits(instance->start, gpu->profile[instance->profile].memory_slices, gpu->memory_slices))
        return false;
    for (const struct compute *compute = instance->compute; compute < instance->compute + MAX_COMPUTE; compute++)
        if (compute->birth &&
            (compute->profile >= MAX_COMPUTE_PROFILES || compute->mig_index >= MAX_INSTANCES ||
             !fits(compute->start, machine->compute_profile[compute->profile].slices, MAX_SLICES)))
            return false;
    return true;
}

/* NULL, or the name of the first field that does not make sense. */
static const char *gpu_flaw(const struct machine *machine, const struct gpu *gpu)
{
    if (gpu->memory_slices < 1 || gpu->memory_slices > MAX_SLICES)
        return "memory_slices";
    if (gpu->compute_slices > MAX_SLICES)
        return "compute_slices";
    if (!is_mode(gpu->mig) || (gpu->mig == NONE) != (gpu->mig_pending == NONE))
        return "mig";
    if (!is_mode(gpu->mig_pending))
        return "mig_pending";
    if (!clocks_are_sound(gpu))
        return "graphics_clock_max";
    if (!gpu->graphics_clock_step)
        return "graphics_clock_step";
    if (!is_list(gpu->cpus))
        return "cpus";
    if (!is_list(gpu->cpus_of_socket))
        return "cpus_of_socket";
    if (!is_list(gpu->cpu_nodes_of_socket))
        return "cpu_nodes_of_socket";
    if (gpu->profile_count > MAX_PROFILES)
        return "profile_count";
    for (uint32_t i = 0; i < gpu->profile_count; i++)
        if (!profile_is_sound(gpu, &gpu->profile[i]))
            return "profile";
    for (uint32_t i = 0; i < MAX_INSTANCES; i++)
        if (!instance_is_sound(machine, gpu, &gpu->instance[i]))
            return "instance";
    return NULL;
}

/* Whether it makes sense; `field` says what does not. */
bool machine_is_sound(const struct machine *machine, char *field, size_t size)
{
    if (!text_is_whole(machine))
        return snprintf(field, size, "texts"), false;
    if (machine->system.gpu_count < 1 || machine->system.gpu_count > MAX_GPUS)
        return snprintf(field, size, "system.gpu_count"), false;
    for (uint32_t i = 0; i < MAX_COMPUTE_PROFILES; i++)
        if (machine->compute_profile[i].slices > MAX_SLICES)
            return snprintf(field, size, "compute_profile.%u", i), false;
    for (uint32_t i = 0; i < machine->system.gpu_count; i++) {
        const char *flaw = gpu_flaw(machine, &machine->gpu[i]);
        if (flaw)
            return snprintf(field, size, "gpu.%u.%s", i, flaw), false;
    }
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        if (machine->client[i].id && machine->client[i].kind > MPS)
            return snprintf(field, size, "client.%u.kind", i), false;
    for (uint32_t i = 0; i < MAX_FAULTS; i++)
        if (machine->fault[i].symbol[0] && machine->fault[i].kind > KILL)
            return snprintf(field, size, "fault.%u.kind", i), false;
    return true;
}
