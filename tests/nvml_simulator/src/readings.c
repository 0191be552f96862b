/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* What monitors walk over: samples, engines, performance states, sensors; and what a GPU for data centres refuses. */
#include "simulator.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static unsigned long long now_usec(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

/* Only products with video encoders have sessions of them: those of Ada, and of Blackwell for graphics. */
static bool has_encoder(const struct gpu *gpu)
{
    return (gpu->compute_major == 8 && gpu->compute_minor == 9) || gpu->compute_major == 12;
}

/* ---- samples: the driver keeps some; here it is one, that of now */

enum sample { POWER, GPU_USE, MEMORY_USE, ENCODER_USE, DECODER_USE, GRAPHICS_CLOCK, MEMORY_CLOCK, SAMPLE_TYPES };

static uint32_t sample_of(const struct gpu *gpu, unsigned int type)
{
    switch (type) {
    case POWER: return gpu->power_usage;
    case GPU_USE: return gpu->mig == 1 ? NONE : gpu->utilization_gpu;
    case MEMORY_USE: return gpu->mig == 1 ? NONE : gpu->utilization_memory;
    case ENCODER_USE:
    case DECODER_USE: return gpu->mig == 1 ? NONE : 0;
    case GRAPHICS_CLOCK: return gpu->graphics_clock_max;
    default: return gpu->memory_clocks.count ? gpu->memory_clocks.item[0] : NONE;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type, unsigned long long since,
                                         unsigned int *value_type, unsigned int *count, nvmlSample_t *samples)
{
    BEGIN_GPU(device);
    REQUIRE(type < SAMPLE_TYPES && value_type && count, NVML_ERROR_INVALID_ARGUMENT);
    uint32_t value = sample_of(gpu, type);
    REQUIRE(value != NONE, NVML_ERROR_NOT_SUPPORTED);
    *value_type = VALUE_UINT;
    if (!samples) {
        *count = 1; /* the room that it takes */
        END(NVML_SUCCESS);
    }
    REQUIRE(*count >= 1, NVML_ERROR_INSUFFICIENT_SIZE);
    unsigned long long now = now_usec();
    REQUIRE(since < now, NVML_ERROR_NOT_FOUND);
    samples[0] = (nvmlSample_t){.timestamp = now, .value.as_uint = value};
    *count = 1;
    END(NVML_SUCCESS);
}

/* Nobody was seen to use anything since then. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)
{
    BEGIN_GPU(device);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(info->version == VERSION(nvmlProcessesUtilizationInfo_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(gpu->mig != 1, NVML_ERROR_NOT_SUPPORTED);
    info->count = 0;
    END(NVML_ERROR_NOT_FOUND);
}

/* No process has ended whose statistics could have been kept. */
EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, void *stats)
{
    (void)pid;
    BEGIN_GPU(device);
    REQUIRE(stats, NVML_ERROR_INVALID_ARGUMENT);
    END(gpu->accounting == 1 ? NVML_ERROR_NOT_FOUND : NVML_ERROR_NOT_SUPPORTED);
}

/* ---- video engines */

EXPORT nvmlReturn_t nvmlDeviceGetEncoderCapacity(nvmlDevice_t device, unsigned int codec, unsigned int *percent)
{
    enum { AV1 = 2 };
    BEGIN_GPU(device);
    REQUIRE(codec <= AV1, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(percent, has_encoder(gpu) ? 100 : NONE));
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessions, unsigned int *frames,
                                              unsigned int *latency)
{
    BEGIN_GPU(device);
    (void)gpu;
    REQUIRE(sessions && frames && latency, NVML_ERROR_INVALID_ARGUMENT);
    *sessions = *frames = *latency = 0;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, unsigned int stats[3])
{
    BEGIN_GPU(device);
    (void)gpu;
    REQUIRE(stats, NVML_ERROR_INVALID_ARGUMENT);
    memset(stats, 0, 3 * sizeof *stats);
    END(NVML_SUCCESS);
}

#define NO_SESSIONS(symbol)                                                             \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, void *infos) \
    {                                                                                   \
        (void)infos;                                                                    \
        BEGIN_GPU(device);                                                              \
        (void)gpu;                                                                      \
        END(put_u32(count, 0));                                                         \
    }

NO_SESSIONS(nvmlDeviceGetEncoderSessions)
NO_SESSIONS(nvmlDeviceGetFBCSessions)

/* ---- performance states: compute GPUs have one, others leave it when they are idle */

EXPORT nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, unsigned int *states,
                                                            unsigned int bytes)
{
    enum { LOW = 8, UNKNOWN = 32 };
    BEGIN_GPU(device);
    unsigned int room = bytes / sizeof *states;
    REQUIRE(states, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(room >= 2, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < room; i++)
        states[i] = UNKNOWN;
    states[0] = 0;
    if (has_encoder(gpu))
        states[1] = LOW;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t device, unsigned int clock, unsigned int state,
                                                     unsigned int *lowest, unsigned int *highest)
{
    enum { GRAPHICS, SM, MEMORY, VIDEO };
    BEGIN_GPU(device);
    REQUIRE(lowest && highest && clock <= VIDEO && state == 0, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->graphics_clock_max != NONE && gpu->memory_clocks.count, NVML_ERROR_NOT_SUPPORTED);
    const uint32_t *memory = gpu->memory_clocks.item;
    *lowest = clock == MEMORY ? memory[gpu->memory_clocks.count - 1] : gpu->graphics_clock_min;
    *highest = clock == MEMORY ? memory[0] : clock == VIDEO ? gpu->video_clock_max : gpu->graphics_clock_max;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t *info)
{
    BEGIN_GPU(device);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig != 1, NVML_ERROR_NOT_SUPPORTED);
    *info = (nvmlGpuDynamicPstatesInfo_t){.utilization = {{.present = 1, .percent = gpu->utilization_gpu},
                                                          {.present = 1, .percent = gpu->utilization_memory}}};
    END(NVML_SUCCESS);
}

#define CLOCK_TEXT(symbol, format)                                                                                \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, nvmlText_t *text)                                             \
    {                                                                                                             \
        BEGIN_GPU(device);                                                                                        \
        REQUIRE(text, NVML_ERROR_INVALID_ARGUMENT);                                                               \
        REQUIRE(text->version == VERSION(nvmlText_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);                   \
        REQUIRE(gpu->graphics_clock_max != NONE && gpu->memory_clocks.count, NVML_ERROR_NOT_SUPPORTED);           \
        snprintf(text->text, sizeof text->text, format, gpu->performance_state, gpu->graphics_clock_max,          \
                 gpu->memory_clocks.item[0]);                                                                     \
        END(NVML_SUCCESS);                                                                                        \
    }

CLOCK_TEXT(nvmlDeviceGetCurrentClockFreqs, "perf=%u, nvclock=%u, memclock=%u")
CLOCK_TEXT(nvmlDeviceGetPerformanceModes, "perf=%u, nvclockmax=%u, memclockmax=%u")

/* ---- sensors and power */

EXPORT nvmlReturn_t nvmlDeviceGetThermalSettings(nvmlDevice_t device, unsigned int sensor,
                                                 nvmlGpuThermalSettings_t *settings)
{
    enum { INTERNAL = 1, OF_GPU = 1, ALL = 15 };
    BEGIN_GPU(device);
    REQUIRE(settings && (sensor == 0 || sensor == ALL), NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->temperature != NONE && gpu->temperature_shutdown != NONE, NVML_ERROR_NOT_SUPPORTED);
    *settings = (nvmlGpuThermalSettings_t){
        .count = 1,
        .sensor = {{INTERNAL, 0, (int)gpu->temperature_shutdown, (int)gpu->temperature, OF_GPU}},
    };
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t device, unsigned int *source)
{
    enum { AC = 0 };
    BEGIN_GPU(device);
    (void)gpu;
    END(put_u32(source, AC));
}

EXPORT nvmlReturn_t nvmlDeviceGetAdaptiveClockInfoStatus(nvmlDevice_t device, unsigned int *status)
{
    BEGIN_GPU(device);
    END(put_u32(status, gpu->architecture >= ARCH_AMPERE));
}

EXPORT nvmlReturn_t nvmlDeviceGetAPIRestriction(nvmlDevice_t device, unsigned int api, unsigned int *restricted)
{
    enum { APPLICATION_CLOCKS, AUTO_BOOST };
    BEGIN_GPU(device);
    (void)gpu;
    REQUIRE(api <= AUTO_BOOST, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(restricted, api == APPLICATION_CLOCKS ? 0 : NONE));
}

EXPORT nvmlReturn_t nvmlDeviceGetMinMaxFanSpeed(nvmlDevice_t device, unsigned int *lowest, unsigned int *highest)
{
    BEGIN_GPU(device);
    REQUIRE(lowest && highest, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->fans, NVML_ERROR_NOT_SUPPORTED);
    *lowest = 30;
    *highest = 100;
    END(NVML_SUCCESS);
}

#define OF_A_FAN(symbol, value)                                                                  \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int fan, unsigned int *out)        \
    {                                                                                            \
        BEGIN_GPU(device);                                                                       \
        REQUIRE(gpu->fans, NVML_ERROR_NOT_SUPPORTED);                                            \
        REQUIRE(fan < gpu->fans, NVML_ERROR_INVALID_ARGUMENT);                                   \
        END(put_u32(out, value));                                                                \
    }

OF_A_FAN(nvmlDeviceGetTargetFanSpeed, 30)
OF_A_FAN(nvmlDeviceGetFanControlPolicy_v2, 0)

/* ---- health */

EXPORT nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t *status)
{
    BEGIN_GPU(device);
    (void)gpu;
    REQUIRE(status, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(status->version == VERSION(nvmlRepairStatus_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    status->channel_pending = status->tpc_pending = 0;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts(nvmlDevice_t device,
                                                                     nvmlEccSramUniqueErrors_t *errors)
{
    BEGIN_GPU(device);
    REQUIRE(errors, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(errors->version == VERSION(nvmlEccSramUniqueErrors_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(gpu->ecc == 1, NVML_ERROR_NOT_SUPPORTED);
    errors->count = 0;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device, unsigned int *unrepairable)
{
    BEGIN_GPU(device);
    END(put_u32(unrepairable, gpu->remap_failure));
}

/* The identifier of the board, which no two have. */
EXPORT nvmlReturn_t nvmlDeviceGetPdi(nvmlDevice_t device, nvmlPdi_t *pdi)
{
    BEGIN_GPU(device);
    REQUIRE(pdi, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(pdi->version == VERSION(nvmlPdi_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    pdi->value = (uint64_t)symbol_hash(gpu->uuid) << 32 | symbol_hash(gpu->serial);
    END(NVML_SUCCESS);
}

/* ---- what GPUs for data centres refuse: overclocking, virtual GPUs, counters of NVLink that went with Ampere,
 * and what nobody captured on one */

#define REFUSED(symbol)                                 \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device) \
    {                                                   \
        BEGIN_GPU(device);                              \
        (void)gpu;                                      \
        END(NVML_ERROR_NOT_SUPPORTED);                  \
    }

REFUSED(nvmlDeviceGetGpcClkVfOffset)
REFUSED(nvmlDeviceGetGpcClkMinMaxVfOffset)
REFUSED(nvmlDeviceGetMemClkVfOffset)
REFUSED(nvmlDeviceGetMemClkMinMaxVfOffset)
REFUSED(nvmlDeviceGetClockOffsets)
REFUSED(nvmlDeviceGetClkMonStatus)
REFUSED(nvmlDeviceGetPowerMizerMode_v1)
REFUSED(nvmlDeviceGetCoolerInfo)
REFUSED(nvmlDeviceGetFanSpeedRPM)
REFUSED(nvmlDeviceGetLastBBXFlushTime)
REFUSED(nvmlDeviceGetNvLinkUtilizationControl)
REFUSED(nvmlDeviceSetNvLinkUtilizationControl)
REFUSED(nvmlDeviceGetNvLinkUtilizationCounter)
REFUSED(nvmlDeviceFreezeNvLinkUtilizationCounter)
REFUSED(nvmlDeviceResetNvLinkUtilizationCounter)
REFUSED(nvmlDeviceGetNvLinkInfo)
REFUSED(nvmlDeviceGetNvlinkBwMode)
REFUSED(nvmlDeviceGetNvlinkSupportedBwModes)
REFUSED(nvmlDeviceGetDramEncryptionMode)
REFUSED(nvmlDeviceGetConfComputeProtectedMemoryUsage)
REFUSED(nvmlDeviceGetConfComputeGpuCertificate)
REFUSED(nvmlDeviceGetConfComputeGpuAttestationReport)
REFUSED(nvmlDeviceGetSupportedVgpus)
REFUSED(nvmlDeviceGetCreatableVgpus)
REFUSED(nvmlDeviceGetActiveVgpus)
REFUSED(nvmlDeviceGetVgpuUtilization)
REFUSED(nvmlDeviceGetVgpuProcessUtilization)
REFUSED(nvmlDeviceGetVgpuMetadata)
REFUSED(nvmlDeviceGetPgpuMetadataString)
REFUSED(nvmlDeviceGetGridLicensableFeatures)
REFUSED(nvmlDeviceGetGridLicensableFeatures_v2)
REFUSED(nvmlDeviceGetGridLicensableFeatures_v3)
REFUSED(nvmlDeviceWorkloadPowerProfileGetProfilesInfo)
REFUSED(nvmlDeviceWorkloadPowerProfileGetCurrentProfiles)
