/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* Readings: temperature, power, clocks' reasons, memory errors. */
#include "simulator.h"

#include <string.h>

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *degrees)
{
    BEGIN_GPU(device);
    REQUIRE(sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(degrees, gpu->temperature));
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    BEGIN_GPU(device);
    REQUIRE(temperature, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(temperature->version == VERSION(nvmlTemperature_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(temperature->sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32((unsigned int *)&temperature->temperature, gpu->temperature));
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int threshold,
                                                      unsigned int *degrees)
{
    BEGIN_GPU(device);
    const uint32_t thresholds[] = {gpu->temperature_shutdown, gpu->temperature_slowdown, gpu->temperature_memory_max,
                                   gpu->temperature_gpu_max, NONE, NONE, NONE, NONE};
    REQUIRE(threshold < sizeof thresholds / sizeof thresholds[0], NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(degrees, thresholds[threshold]));
}

EXPORT nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *margin)
{
    BEGIN_GPU(device);
    REQUIRE(margin, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(margin->version == VERSION(nvmlMarginTemperature_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(gpu->temperature != NONE && gpu->temperature_gpu_max != NONE, NVML_ERROR_NOT_SUPPORTED);
    margin->margin = (int)gpu->temperature_gpu_max - (int)gpu->temperature;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *fans)
{
    BEGIN_GPU(device);
    END(put_u32(fans, gpu->fans));
}

EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent)
{
    BEGIN_GPU(device);
    END(put_u32(percent, gpu->fans ? 30 : NONE));
}

EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *percent)
{
    BEGIN_GPU(device);
    REQUIRE(fan < gpu->fans, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(percent, 30));
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
    BEGIN_GPU(device);
    END(put_u32(milliwatts, gpu->power_usage));
}

static nvmlReturn_t put_u64(unsigned long long *out, uint64_t value)
{
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (value == UINT64_MAX)
        return NVML_ERROR_NOT_SUPPORTED;
    *out = value;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules)
{
    BEGIN_GPU(device);
    END(put_u64(millijoules, gpu->energy));
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned int *state)
{
    BEGIN_GPU(device);
    END(put_u32(state, gpu->performance_state));
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, unsigned int *state)
{
    BEGIN_GPU(device);
    END(put_u32(state, gpu->performance_state));
}

static uint64_t event_reasons(const struct machine *machine, const struct gpu *gpu)
{
    enum { IDLE = 1 };
    return gpu->clocks_event_reasons | (gpu_has_work(machine, gpu_index(machine, gpu)) ? 0u : IDLE);
}

#define REASONS(symbol, expression)                                               \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned long long *reasons) \
    {                                                                             \
        BEGIN_GPU(device);                                                        \
        END(put_u64(reasons, expression));                                        \
    }

REASONS(nvmlDeviceGetCurrentClocksEventReasons, event_reasons(call.machine, gpu))
REASONS(nvmlDeviceGetCurrentClocksThrottleReasons, event_reasons(call.machine, gpu))
REASONS(nvmlDeviceGetSupportedClocksEventReasons, gpu->clocks_event_reasons_supported)
REASONS(nvmlDeviceGetSupportedClocksThrottleReasons, gpu->clocks_event_reasons_supported)

EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned int policy, nvmlViolationTime_t *time)
{
    enum { LAST_LIMIT = 5, APP_CLOCKS = 10, BASE_CLOCKS = 11 };
    BEGIN_GPU(device);
    (void)gpu;
    REQUIRE(time && (policy <= LAST_LIMIT || policy == APP_CLOCKS || policy == BASE_CLOCKS),
            NVML_ERROR_INVALID_ARGUMENT);
    *time = (nvmlViolationTime_t){.reference_time = now_usec()};
    END(NVML_SUCCESS);
}

enum error_type { CORRECTED, UNCORRECTED, ERROR_TYPES };
enum counter { VOLATILE, AGGREGATE, COUNTERS };

static uint64_t ecc_count(const struct gpu *gpu, unsigned int type, unsigned int counter)
{
    const uint64_t counts[] = {gpu->ecc_volatile_corrected, gpu->ecc_aggregate_corrected,
                               gpu->ecc_volatile_uncorrected, gpu->ecc_aggregate_uncorrected};
    return counts[type * COUNTERS + counter];
}

/* Errors are only counted while ECC is on. */
#define BEGIN_ECC(device, type, counter)                                                          \
    BEGIN_GPU(device);                                                                            \
    REQUIRE((type) < ERROR_TYPES && (counter) < COUNTERS, NVML_ERROR_INVALID_ARGUMENT);           \
    REQUIRE(gpu->ecc == 1, NVML_ERROR_NOT_SUPPORTED)

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type, unsigned int counter,
                                                unsigned long long *count)
{
    BEGIN_ECC(device, type, counter);
    END(put_u64(count, ecc_count(gpu, type, counter)));
}

/* All of them are in the device memory. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int type, unsigned int counter,
                                                    unsigned int location, unsigned long long *count)
{
    enum { DRAM = 2, SRAM = 7 };
    BEGIN_ECC(device, type, counter);
    REQUIRE(location <= SRAM, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(location == DRAM || location == SRAM, NVML_ERROR_NOT_SUPPORTED);
    END(put_u64(count, location == DRAM ? ecc_count(gpu, type, counter) : 0));
}

EXPORT nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, unsigned int type, unsigned int counter,
                                                   nvmlEccErrorCounts_t *counts)
{
    BEGIN_ECC(device, type, counter);
    REQUIRE(counts, NVML_ERROR_INVALID_ARGUMENT);
    *counts = (nvmlEccErrorCounts_t){.device_memory = ecc_count(gpu, type, counter)};
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *status)
{
    BEGIN_GPU(device);
    REQUIRE(status, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(status->version == VERSION(nvmlEccSramErrorStatus_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(gpu->ecc == 1, NVML_ERROR_NOT_SUPPORTED);
    *status = (nvmlEccSramErrorStatus_t){.version = status->version};
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, unsigned int counter)
{
    BEGIN_ROOT(device);
    REQUIRE(counter < COUNTERS, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->ecc == 1, NVML_ERROR_NOT_SUPPORTED);
    change_gpu(call.state, gpu);
    if (counter == VOLATILE)
        gpu->ecc_volatile_corrected = gpu->ecc_volatile_uncorrected = 0;
    else
        gpu->ecc_aggregate_corrected = gpu->ecc_aggregate_uncorrected = 0;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                              unsigned int *pending, unsigned int *failure)
{
    BEGIN_GPU(device);
    REQUIRE(corrected && uncorrected && pending && failure, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->remapped_corrected != NONE, NVML_ERROR_NOT_SUPPORTED);
    *corrected = gpu->remapped_corrected;
    *uncorrected = gpu->remapped_uncorrected;
    *pending = gpu->remap_pending;
    *failure = gpu->remap_failure;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *values)
{
    BEGIN_GPU(device);
    REQUIRE(values, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->remap_banks_max != NONE, NVML_ERROR_NOT_SUPPORTED);
    *values = (nvmlRowRemapperHistogramValues_t){gpu->remap_banks_max, gpu->remap_banks_high,
                                                 gpu->remap_banks_partial, gpu->remap_banks_low,
                                                 gpu->remap_banks_none};
    END(NVML_SUCCESS);
}

static nvmlReturn_t put_retired(const struct gpu *gpu, unsigned int cause, unsigned int *count,
                                unsigned long long *pages)
{
    enum { SINGLE_BIT, DOUBLE_BIT, CAUSES };
    if (cause >= CAUSES || !count || (*count && !pages))
        return NVML_ERROR_INVALID_ARGUMENT;
    uint32_t retired = cause == SINGLE_BIT ? gpu->retired_single : gpu->retired_double;
    if (retired == NONE)
        return NVML_ERROR_NOT_SUPPORTED;
    bool fits = retired <= *count;
    *count = retired;
    for (uint32_t i = 0; fits && i < retired; i++)
        pages[i] = 0x100000ull * (cause + 1) + 0x1000ull * i;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause, unsigned int *count,
                                              unsigned long long *pages)
{
    BEGIN_GPU(device);
    END(put_retired(gpu, cause, count, pages));
}

/* A call that only asks for the size may leave `times` out altogether: it is not looked at then. */
EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned int cause, unsigned int *count,
                                                 unsigned long long *pages, unsigned long long *times)
{
    BEGIN_GPU(device);
    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    unsigned int room = *count;
    nvmlReturn_t result = put_retired(gpu, cause, count, pages);
    if (result == NVML_SUCCESS && room && *count)
        memset(times, 0, *count * sizeof *times);
    END(result);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned int *pending)
{
    BEGIN_GPU(device);
    END(put_u32(pending, gpu->retired_pending));
}
