/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* What NVML says about the machine rather than about a GPU. */
#include "simulator.h"

#include <string.h>

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    static const struct {
        nvmlReturn_t code;
        const char *text;
    } texts[] = {
        {NVML_SUCCESS, "The operation was successful"},
        {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
        {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
        {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized"},
        {NVML_ERROR_NOT_FOUND, "Not Found"},
        {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
        {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {NVML_ERROR_TIMEOUT, "Timeout"},
        {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
        {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
        {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
        {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
        {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
        {NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
        {NVML_ERROR_OPERATING_SYSTEM, "GPU access blocked by the operating system"},
        {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
        {NVML_ERROR_IN_USE, "In use by another client"},
        {NVML_ERROR_MEMORY, "Insufficient Memory"},
        {NVML_ERROR_NO_DATA, "No data"},
        {NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, "vGPU operation not supported with ECC enabled"},
        {NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient Resources"},
        {NVML_ERROR_FREQ_NOT_SUPPORTED, "Requested frequency is not supported"},
        {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
        {NVML_ERROR_DEPRECATED, "The requested functionality has been deprecated"},
        {NVML_ERROR_NOT_READY, "System is not in ready state"},
        {NVML_ERROR_GPU_NOT_FOUND, "GPU not found"},
        {NVML_ERROR_INVALID_STATE, "Resource not in the required state"},
        {NVML_ERROR_RESET_TYPE_NOT_SUPPORTED, "Reset type is not supported"},
        {NVML_ERROR_UNKNOWN, "Unknown Error"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].code == result)
            return texts[i].text;
    return "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    BEGIN(false);
    END(put_text(version, length, call.machine->system.driver_version));
}

/* The library knows its own version without nvmlInit. */
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    struct call call;
    nvmlReturn_t begun = call_begin(&call, __func__, false);
    struct state *state = NULL;
    if (call.state)
        END(begun == NVML_SUCCESS ? put_text(version, length, call.machine->system.nvml_version) : begun);
    int file = state_map(state_path(), &state);
    if (file < 0)
        return NVML_ERROR_UNINITIALIZED;
    begun = put_text(version, length, state->machine.system.nvml_version);
    state_unmap(file, state);
    return begun;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    BEGIN(false);
    END(put_u32((unsigned int *)version, call.machine->system.cuda_version));
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    BEGIN(false);
    END(put_u32((unsigned int *)version, call.machine->system.cuda_version));
}

EXPORT nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *info, unsigned int length)
{
    BEGIN(false);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(info->version == VERSION(nvmlSystemDriverBranchInfo_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(length <= sizeof info->branch, NVML_ERROR_INVALID_ARGUMENT);
    END(put_text(info->branch, length, call.machine->system.driver_branch));
}

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char found[1024] = "";
    BEGIN(false);
    REQUIRE(name && length, NVML_ERROR_INVALID_ARGUMENT);
    for (struct client *client = call.machine->client; client < call.machine->client + MAX_CLIENTS; client++)
        if (client->id && client->pid == pid)
            strcpy(found, client->name);
    if (!found[0])
        process_name((pid_t)pid, found, sizeof found);
    REQUIRE(found[0], NVML_ERROR_NOT_FOUND);
    strncpy(name, found, length - 1); /* the real one cuts a long name, too */
    name[length - 1] = '\0';
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *count, void *entries)
{
    (void)entries;
    BEGIN(false);
    END(put_u32(count, 0));
}

EXPORT nvmlReturn_t nvmlSystemGetConfComputeCapabilities(nvmlConfComputeSystemCaps_t *capabilities)
{
    BEGIN(false);
    REQUIRE(capabilities, NVML_ERROR_INVALID_ARGUMENT);
    capabilities->cpu_caps = call.machine->system.cc_cpu_capabilities;
    capabilities->gpus_caps = call.machine->system.cc_gpu_capabilities;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state)
{
    BEGIN(false);
    const struct system *system = &call.machine->system;
    REQUIRE(state, NVML_ERROR_INVALID_ARGUMENT);
    *state = (nvmlConfComputeSystemState_t){system->cc_environment, system->cc_feature, system->cc_dev_tools_mode};
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetConfComputeSettings(nvmlSystemConfComputeSettings_t *settings)
{
    BEGIN(false);
    const struct system *system = &call.machine->system;
    REQUIRE(settings, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(settings->version == VERSION(nvmlSystemConfComputeSettings_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    settings->environment = system->cc_environment;
    settings->cc_feature = system->cc_feature;
    settings->dev_tools_mode = system->cc_dev_tools_mode;
    settings->multi_gpu_mode = system->cc_multi_gpu_mode;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetConfComputeGpusReadyState(unsigned int *accepting)
{
    BEGIN(false);
    END(put_u32(accepting, call.machine->system.cc_gpus_ready));
}

EXPORT nvmlReturn_t nvmlSystemSetConfComputeGpusReadyState(unsigned int accepting)
{
    BEGIN(true);
    REQUIRE(accepting <= 1, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(is_root(), NVML_ERROR_NO_PERMISSION);
    REQUIRE(call.machine->system.cc_feature, NVML_ERROR_NOT_SUPPORTED);
    call.machine->system.cc_gpus_ready = accepting;
    END(NVML_SUCCESS);
}

/* The default, where no GPU is confidential. */
EXPORT nvmlReturn_t nvmlSystemGetConfComputeKeyRotationThresholdInfo(nvmlConfComputeKeyRotation_t *info)
{
    BEGIN(false);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(info->version == VERSION(nvmlConfComputeKeyRotation_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(call.machine->system.cc_gpu_capabilities, NVML_ERROR_NOT_SUPPORTED);
    info->attacker_advantage = 60;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetNvlinkBwMode(unsigned int *mode)
{
    enum { FULL = 0 };
    BEGIN(false);
    END(put_u32(mode, FULL));
}

/* Those of branch 580 were recorded. */
EXPORT nvmlReturn_t nvmlGetVgpuVersion(nvmlVgpuVersion_t *supported, nvmlVgpuVersion_t *current)
{
    BEGIN(false);
    REQUIRE(supported && current, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(driver_branch(call.machine) == RECORDED_BRANCH, NVML_ERROR_NOT_SUPPORTED);
    *supported = *current = (nvmlVgpuVersion_t){0x120001, 0x1A0001};
    END(NVML_SUCCESS);
}

/* S-class boxes are long gone: there are none. */
EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned int *count)
{
    BEGIN(false);
    END(put_u32(count, 0));
}

EXPORT nvmlReturn_t nvmlUnitGetHandleByIndex(unsigned int index, void **unit)
{
    (void)index, (void)unit;
    BEGIN(false);
    END(NVML_ERROR_INVALID_ARGUMENT);
}

EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count)
{
    BEGIN(false);
    END(put_u32(count, 0));
}

EXPORT nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index, void *info)
{
    (void)index, (void)info;
    BEGIN(false);
    END(NVML_ERROR_INVALID_ARGUMENT);
}
