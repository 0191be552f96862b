/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* What a GPU loses: at the end of its last client, at a reset, when the driver is loaded again. */
#include "simulator.h"

#include <string.h>

/* The driver's defaults, as after it initialised the GPU. */
void gpu_forget_settings(struct gpu *gpu)
{
    gpu->power_limit = gpu->power_limit_default;
    gpu->locked_graphics_min = gpu->locked_graphics_max = NONE;
    gpu->locked_memory_min = gpu->locked_memory_max = NONE;
    gpu->compute_mode = 0;
    gpu->time_slice = 0;
    gpu->accounting = 0;
    if (gpu->ecc_volatile_corrected != UINT64_MAX)
        gpu->ecc_volatile_corrected = gpu->ecc_volatile_uncorrected = 0;
}

/* Instances go and what was pending applies. Who calls has seen to it that no client is in the way. */
void gpu_reset(struct gpu *gpu)
{
    gpu_forget_settings(gpu);
    memset(gpu->instance, 0, sizeof gpu->instance);
    gpu->persistence = 0;
    gpu->ecc = gpu->ecc_pending;
    gpu->mig = gpu->mig_pending;
    if (gpu->remap_pending != NONE)
        gpu->remap_pending = 0;
    if (gpu->retired_pending != NONE)
        gpu->retired_pending = 0;
    if (gpu->energy != UINT64_MAX)
        gpu->energy = 0; /* counted since the driver took the GPU up */
    gpu->generation++;
}

/* Only Ampere keeps the MIG mode without the driver: it is in the InfoROM. */
void driver_reload(struct state *state)
{
    struct machine *machine = &state->machine;
    for (uint32_t i = 0; i < machine->system.gpu_count; i++) {
        struct gpu *gpu = &machine->gpu[i];
        if (!gpu->mig_needs_reset && gpu->mig_pending != NONE)
            gpu->mig_pending = 0;
        gpu_reset(gpu);
    }
    machine->system.epoch++;
}

/* One that died has left nothing behind: its switches are nobody's from then on. */
static bool fabric_manager_runs(const struct system *system)
{
    return system->fabric_manager ||
           (system->fabric_manager_pid &&
            process_start((pid_t)system->fabric_manager_pid) == system->fabric_manager_start);
}

/* The GPUs, as bits, which a reset of this one takes with it: after nvidia-smi's manual on --gpu-reset, all that are
 * linked to it, unless a fabric manager looks after its switches (Ampere) or none is needed for them (later ones). */
uint32_t reset_together(const struct machine *machine, uint32_t index)
{
    const struct gpu *gpu = &machine->gpu[index];
    bool managed = fabric_manager_runs(&machine->system) && gpu->architecture >= ARCH_AMPERE;
    if (gpu->nvlink_remote == REMOTE_SWITCH && (managed || gpu->architecture >= ARCH_HOPPER))
        return 1u << index;
    return 1u << index | linked_gpus(machine, index);
}
