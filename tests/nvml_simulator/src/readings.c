/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* What monitors walk over: samples, engines, performance states, sensors; and what a GPU for data centres refuses. */
#include "simulator.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

unsigned long long now_usec(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

/* Only products with video encoders have sessions of them: those of Ada, and of Blackwell for graphics. */
bool has_encoder(const struct gpu *gpu)
{
    return (gpu->compute_major == 8 && gpu->compute_minor == 9) || gpu->compute_major == 12;
}

/* ---- samples: the driver keeps some; here it is one, that of now */

enum sample { POWER, GPU_USE, MEMORY_USE, ENCODER_USE, DECODER_USE, CLOCK_OF_GPU, CLOCK_OF_MEMORY, SAMPLE_TYPES };

static uint32_t sample_of(const struct gpu *gpu, unsigned int type)
{
    switch (type) {
    case POWER: return gpu->power_usage;
    case GPU_USE: return gpu->mig == 1 ? NONE : gpu->utilization_gpu;
    case MEMORY_USE: return gpu->mig == 1 ? NONE : gpu->utilization_memory;
    case ENCODER_USE:
    case DECODER_USE: return gpu->mig == 1 ? NONE : 0;
    case CLOCK_OF_GPU: return gpu->graphics_clock_max;
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
    enum { H264, HEVC, AV1 };
    BEGIN_GPU(device);
    REQUIRE(codec <= AV1, NVML_ERROR_INVALID_ARGUMENT);
    /* An H200 says so of the first two, although it has none. */
    bool says_so = gpu->architecture >= ARCH_HOPPER && codec != AV1;
    END(put_u32(percent, has_encoder(gpu) || says_so ? 100 : NONE));
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

/* ---- performance states: P0, where the memory is at its highest clock, and one for idle GPUs or slower memory */

/* P2 was recorded on an H200, before P0 in the list. */
static bool has_slow_memory(const struct gpu *gpu)
{
    return gpu->architecture >= ARCH_HOPPER && gpu->memory_clocks.count > 1 && !has_encoder(gpu);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, unsigned int *states,
                                                            unsigned int bytes)
{
    enum { SLOW_MEMORY = 2, IDLE = 8, UNKNOWN = 32 };
    BEGIN_GPU(device);
    unsigned int room = bytes / sizeof *states;
    REQUIRE(states, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(room >= 2, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < room; i++)
        states[i] = UNKNOWN;
    states[0] = has_slow_memory(gpu) ? SLOW_MEMORY : 0;
    if (has_slow_memory(gpu) || has_encoder(gpu))
        states[1] = has_encoder(gpu) ? IDLE : 0;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t device, unsigned int clock, unsigned int state,
                                                     unsigned int *lowest, unsigned int *highest)
{
    BEGIN_GPU(device);
    REQUIRE(lowest && highest && clock < CLOCKS && state == 0, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->graphics_clock_max != NONE && gpu->memory_clocks.count, NVML_ERROR_NOT_SUPPORTED);
    const uint32_t *memory = gpu->memory_clocks.item;
    *lowest = clock == MEMORY_CLOCK ? memory[gpu->memory_clocks.count - 1] : gpu->graphics_clock_min;
    uint32_t highest_core = clock == VIDEO_CLOCK ? gpu->video_clock_max : gpu->graphics_clock_max;
    *highest = clock == MEMORY_CLOCK ? memory[0] : highest_core;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t *info)
{
    BEGIN_GPU(device);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig != 1, NVML_ERROR_NOT_SUPPORTED);
    /* The third and fourth are video engine and bus. */
    *info = (nvmlGpuDynamicPstatesInfo_t){.utilization = {{.present = 1, .percent = gpu->utilization_gpu},
                                                          {.present = 1, .percent = gpu->utilization_memory},
                                                          {.present = 1},
                                                          {.present = 1}}};
    END(NVML_SUCCESS);
}

/* The clocks of one state, in the words of the real one. */
static int put_clocks(char *out, size_t size, const struct gpu *gpu, uint32_t graphics, uint32_t memory)
{
    return snprintf(out, size,
                    "nvclock=%u, nvclockmin=%u, nvclockmax=%u, nvclockeditable=0, memclock=%u, memclockmin=%u, "
                    "memclockmax=%u, memclockeditable=0, memTransferRate=%u, memTransferRatemin=%u, "
                    "memTransferRatemax=%u, memTransferRateeditable=0",
                    graphics, gpu->graphics_clock_min, gpu->graphics_clock_max, memory, memory, memory, 2 * memory,
                    2 * memory, 2 * memory);
}

#define BEGIN_CLOCK_TEXT(device, text)                                                      \
    BEGIN_GPU(device);                                                                      \
    REQUIRE(text, NVML_ERROR_INVALID_ARGUMENT);                                             \
    REQUIRE(text->version == VERSION(nvmlText_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH); \
    REQUIRE(gpu->graphics_clock_max != NONE && gpu->memory_clocks.count, NVML_ERROR_NOT_SUPPORTED)

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClockFreqs(nvmlDevice_t device, nvmlText_t *text)
{
    BEGIN_CLOCK_TEXT(device, text);
    put_clocks(text->text, sizeof text->text, gpu, current_clock(call.machine, gpu, GRAPHICS_CLOCK),
               current_clock(call.machine, gpu, MEMORY_CLOCK));
    END(NVML_SUCCESS);
}

/* One for each clock of the memory, the lowest first; the numbers are not those of performance states. */
EXPORT nvmlReturn_t nvmlDeviceGetPerformanceModes(nvmlDevice_t device, nvmlText_t *text)
{
    BEGIN_CLOCK_TEXT(device, text);
    char *out = text->text, *end = text->text + sizeof text->text;
    for (uint32_t i = 0; i < gpu->memory_clocks.count; i++) {
        out += snprintf(out, (size_t)(end - out), "%sperf=%u, ", i ? " ; " : "", i);
        out += put_clocks(out, (size_t)(end - out), gpu, gpu->graphics_clock_min,
                          gpu->memory_clocks.item[gpu->memory_clocks.count - 1 - i]);
    }
    END(NVML_SUCCESS);
}

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
    END(put_u32(restricted, api == AUTO_BOOST ? 0 : NONE));
}

EXPORT nvmlReturn_t nvmlDeviceGetMinMaxFanSpeed(nvmlDevice_t device, unsigned int *lowest, unsigned int *highest)
{
    BEGIN_GPU(device);
    REQUIRE(lowest && highest && gpu->fans, NVML_ERROR_INVALID_ARGUMENT);
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

/* ---- as an H200 answers, and nothing is known of older ones */

#define OFFSET_OF_CLOCK(symbol)                                                  \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, int *offset)                 \
    {                                                                            \
        BEGIN_GPU(device);                                                       \
        REQUIRE(offset, NVML_ERROR_INVALID_ARGUMENT);                            \
        REQUIRE(gpu->architecture >= ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);     \
        *offset = 0;                                                             \
        END(NVML_SUCCESS);                                                       \
    }

#define RANGE_OF_OFFSET(symbol)                                                  \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, int *lowest, int *highest)   \
    {                                                                            \
        BEGIN_GPU(device);                                                       \
        REQUIRE(lowest && highest, NVML_ERROR_INVALID_ARGUMENT);                 \
        REQUIRE(gpu->architecture >= ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);     \
        *lowest = *highest = 0;                                                  \
        END(NVML_SUCCESS);                                                       \
    }

OFFSET_OF_CLOCK(nvmlDeviceGetGpcClkVfOffset)
OFFSET_OF_CLOCK(nvmlDeviceGetMemClkVfOffset)
RANGE_OF_OFFSET(nvmlDeviceGetGpcClkMinMaxVfOffset)
RANGE_OF_OFFSET(nvmlDeviceGetMemClkMinMaxVfOffset)

EXPORT nvmlReturn_t nvmlDeviceGetFanSpeedRPM(nvmlDevice_t device)
{
    BEGIN_GPU(device);
    END(gpu->fans ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT);
}

EXPORT nvmlReturn_t nvmlDeviceGetLastBBXFlushTime(nvmlDevice_t device, unsigned long long *time, unsigned long *lasted)
{
    BEGIN_GPU(device);
    REQUIRE(time && lasted, NVML_ERROR_INVALID_ARGUMENT);
    END(gpu->architecture >= ARCH_HOPPER ? NVML_ERROR_NOT_READY : NVML_ERROR_NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device, nvmlMemory_t *memory)
{
    BEGIN_GPU(device);
    REQUIRE(memory, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->architecture >= ARCH_HOPPER && !call.machine->system.cc_feature, NVML_ERROR_NOT_SUPPORTED);
    *memory = (nvmlMemory_t){0};
    END(NVML_SUCCESS);
}

/* Without confidential computing there is none. */
EXPORT nvmlReturn_t nvmlDeviceGetConfComputeGpuCertificate(nvmlDevice_t device, void *certificate)
{
    BEGIN_GPU(device);
    REQUIRE(certificate, NVML_ERROR_INVALID_ARGUMENT);
    bool recorded = gpu->architecture >= ARCH_HOPPER && !call.machine->system.cc_feature;
    END(recorded ? NVML_ERROR_UNKNOWN : NVML_ERROR_NOT_SUPPORTED);
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

REFUSED(nvmlDeviceGetClockOffsets)
REFUSED(nvmlDeviceGetClkMonStatus)
REFUSED(nvmlDeviceGetPowerMizerMode_v1)
REFUSED(nvmlDeviceGetCoolerInfo)
REFUSED(nvmlDeviceGetNvLinkUtilizationControl)
REFUSED(nvmlDeviceSetNvLinkUtilizationControl)
REFUSED(nvmlDeviceGetNvLinkUtilizationCounter)
REFUSED(nvmlDeviceFreezeNvLinkUtilizationCounter)
REFUSED(nvmlDeviceResetNvLinkUtilizationCounter)
REFUSED(nvmlDeviceGetNvLinkInfo)
REFUSED(nvmlDeviceGetNvlinkBwMode)
REFUSED(nvmlDeviceGetNvlinkSupportedBwModes)
REFUSED(nvmlDeviceGetDramEncryptionMode)
REFUSED(nvmlDeviceGetConfComputeGpuAttestationReport)
REFUSED(nvmlDeviceGetSupportedVgpus)
REFUSED(nvmlDeviceGetCreatableVgpus)
REFUSED(nvmlDeviceGetActiveVgpus)
REFUSED(nvmlDeviceGetVgpuUtilization)
REFUSED(nvmlDeviceGetVgpuProcessUtilization)
REFUSED(nvmlDeviceGetVgpuMetadata)
REFUSED(nvmlDeviceGetVgpuCapabilities)
REFUSED(nvmlDeviceGetVgpuHeterogeneousMode)
REFUSED(nvmlDeviceGetVgpuSchedulerCapabilities)
REFUSED(nvmlDeviceGetVgpuSchedulerLog)
REFUSED(nvmlDeviceGetVgpuSchedulerState)
REFUSED(nvmlDeviceGetHostname_v1)
REFUSED(nvmlDeviceGetPgpuMetadataString)
REFUSED(nvmlDeviceGetGridLicensableFeatures)
REFUSED(nvmlDeviceGetGridLicensableFeatures_v2)
REFUSED(nvmlDeviceGetGridLicensableFeatures_v3)
REFUSED(nvmlDeviceWorkloadPowerProfileGetProfilesInfo)
REFUSED(nvmlDeviceWorkloadPowerProfileGetCurrentProfiles)
