/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* MIG devices: what a client of a compute instance sees as its GPU. */
#include "simulator.h"

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    BEGIN_ANY_DEVICE(device);
    (void)gpu;
    END(put_u32(is_mig, target.compute != NULL));
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    BEGIN_ANY_DEVICE(device);
    (void)gpu;
    REQUIRE(target.compute, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(id, instance_id(&target)));
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    BEGIN_ANY_DEVICE(device);
    (void)gpu;
    REQUIRE(target.compute, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(id, compute_id(&target)));
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    BEGIN_GPU(device);
    END(put_u32(count, gpu->mig == 1 ? gpu->compute_slices : 0));
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    BEGIN_GPU(device);
    REQUIRE(mig, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig != NONE, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(gpu->mig, NVML_ERROR_NOT_FOUND);
    REQUIRE(index < gpu->compute_slices, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t i = 0; i < MAX_INSTANCES * MAX_COMPUTE; i++) {
        target.instance = &gpu->instance[i / MAX_COMPUTE];
        target.compute = &target.instance->compute[i % MAX_COMPUTE];
        if (target.compute->birth && target.compute->mig_index == index) {
            *mig = handle_of(call.machine, MIG_DEVICE, &target);
            END(NVML_SUCCESS);
        }
    }
    END(NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    BEGIN_TARGET(mig, MIG_DEVICE, false);
    (void)gpu;
    REQUIRE(device, NVML_ERROR_INVALID_ARGUMENT);
    *device = handle_of(call.machine, DEVICE, &target);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    BEGIN_ANY_DEVICE(device);
    REQUIRE(attributes, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(target.compute, NVML_ERROR_NOT_SUPPORTED);
    const struct profile *profile = &gpu->profile[target.instance->profile];
    uint32_t slices = call.machine->compute_profile[target.compute->profile].slices;
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessor_count = compute_multiprocessors(&target, slices),
        .copy_engine_count = profile->copy_engines,
        .decoder_count = profile->decoders,
        .encoder_count = profile->encoders,
        .jpeg_count = profile->jpeg,
        .ofa_count = profile->ofa,
        .gpu_instance_slices = profile->compute_slices,
        .compute_instance_slices = slices,
        .memory_mib = profile->memory_mib,
    };
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    return nvmlDeviceGetAttributes_v2(device, attributes);
}
