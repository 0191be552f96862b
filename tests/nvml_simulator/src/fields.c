/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* nvmlDeviceGetFieldValues: many readings in one call, each with its own result. */
#include "simulator.h"

#include <time.h>

#define FIRST_FIELD 1
#define LAST_FIELD 302

/* The numbers of NVML_FI_DEV_*. */
enum {
    ECC_CURRENT = 1,
    ECC_PENDING = 2,
    ECC_CORRECTED_VOLATILE = 3,
    ECC_UNCORRECTED_VOLATILE = 4,
    ECC_CORRECTED_AGGREGATE = 5,
    ECC_UNCORRECTED_AGGREGATE = 6,
    RETIRED_SINGLE = 29,
    RETIRED_DOUBLE = 30,
    RETIRED_PENDING = 31,
    LINK_CRC_FIRST = 32,
    LINK_CRC_TOTAL = 38,
    LINK_REPLAY_FIRST = 46,
    LINK_REPLAY_TOTAL = 52,
    LINK_RECOVERY_FIRST = 53,
    LINK_RECOVERY_TOTAL = 59,
    MEMORY_TEMPERATURE = 82,
    TOTAL_ENERGY = 83,
    LINK_SPEED_FIRST = 84,
    LINK_SPEED_COMMON = 90,
    LINK_COUNT = 91,
    PCIE_REPLAY = 94,
    PCIE_REPLAY_ROLLOVER = 95,
    REMAPPED_CORRECTED = 142,
    REMAPPED_UNCORRECTED = 143,
    REMAP_PENDING = 144,
    REMAP_FAILURE = 145,
    SWITCH_LINK_COUNT = 147,
    LINK_REPLAY = 161,
    LINK_RECOVERY = 162,
    LINK_CRC = 163,
    LINK_SPEED = 164,
    LINK_STATE = 165,
    LINK_VERSION = 166,
    C2C_LINK_COUNT = 170,
    PCIE_FIRST_ERROR = 173,
    PCIE_LAST_ERROR = 183,
    RESETLESS_MIG = 184,
    POWER_AVERAGE = 185,
    POWER_INSTANT = 186,
    POWER_MIN_LIMIT = 187,
    POWER_MAX_LIMIT = 188,
    POWER_DEFAULT_LIMIT = 189,
    POWER_CURRENT_LIMIT = 190,
    ENERGY = 191,
    POWER_REQUESTED_LIMIT = 192,
    MIG_QUERY_WITHOUT_MODE = 199,
    RESET_STATUS = 226,
    DRAIN_STATUS = 227,
    RECOVERY_ACTION = 230
};

static uint64_t sum(const uint32_t *items, uint32_t count)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += items[i];
    return total;
}

static uint32_t link_item(const uint32_t *items, const struct gpu *gpu, unsigned int link)
{
    return link < gpu->nvlink_state.count ? items[link] : NONE;
}

/* Fields which are a number of their own for each of the first links. */
static uint64_t link_field(const struct gpu *gpu, unsigned int id)
{
    if (id >= LINK_CRC_FIRST && id < LINK_CRC_TOTAL)
        return link_item(gpu->nvlink_crc_errors.item, gpu, id - LINK_CRC_FIRST);
    if (id >= LINK_REPLAY_FIRST && id < LINK_REPLAY_TOTAL)
        return link_item(gpu->nvlink_replay_errors.item, gpu, id - LINK_REPLAY_FIRST);
    if (id >= LINK_RECOVERY_FIRST && id < LINK_RECOVERY_TOTAL)
        return link_item(gpu->nvlink_recovery_errors.item, gpu, id - LINK_RECOVERY_FIRST);
    if (id >= LINK_SPEED_FIRST && id < LINK_SPEED_COMMON && id - LINK_SPEED_FIRST < gpu->nvlink_state.count)
        return gpu->nvlink_speed;
    return NONE;
}

/* NONE (or all ones in 64 bits): not supported. `scope` is the link where a field is about one. */
static uint64_t number(const struct machine *machine, const struct gpu *gpu, unsigned int id, unsigned int scope)
{
    uint32_t links = gpu->nvlink_state.count;
    bool counts = gpu->ecc == 1;
    switch (id) {
    case ECC_CURRENT: return gpu->ecc;
    case ECC_PENDING: return gpu->ecc_pending;
    case ECC_CORRECTED_VOLATILE: return counts ? gpu->ecc_volatile_corrected : UINT64_MAX;
    case ECC_UNCORRECTED_VOLATILE: return counts ? gpu->ecc_volatile_uncorrected : UINT64_MAX;
    case ECC_CORRECTED_AGGREGATE: return counts ? gpu->ecc_aggregate_corrected : UINT64_MAX;
    case ECC_UNCORRECTED_AGGREGATE: return counts ? gpu->ecc_aggregate_uncorrected : UINT64_MAX;
    case RETIRED_SINGLE: return gpu->retired_single;
    case RETIRED_DOUBLE: return gpu->retired_double;
    case RETIRED_PENDING: return gpu->retired_pending;
    case LINK_CRC_TOTAL: return links ? sum(gpu->nvlink_crc_errors.item, links) : NONE;
    case LINK_REPLAY_TOTAL: return links ? sum(gpu->nvlink_replay_errors.item, links) : NONE;
    case LINK_RECOVERY_TOTAL: return links ? sum(gpu->nvlink_recovery_errors.item, links) : NONE;
    case MEMORY_TEMPERATURE: return gpu->temperature_memory;
    case TOTAL_ENERGY:
    case ENERGY: return gpu->energy;
    case LINK_SPEED_COMMON: return links ? gpu->nvlink_speed : NONE;
    case LINK_COUNT: return gpu->nvlink_count;
    case PCIE_REPLAY: return gpu->pcie_replay;
    case PCIE_REPLAY_ROLLOVER: return 0;
    case REMAPPED_CORRECTED: return gpu->remapped_corrected;
    case REMAPPED_UNCORRECTED: return gpu->remapped_uncorrected;
    case REMAP_PENDING: return gpu->remap_pending;
    case REMAP_FAILURE: return gpu->remap_failure;
    case SWITCH_LINK_COUNT: return links ? (gpu->nvlink_remote == 2 ? sum(gpu->nvlink_state.item, links) : 0) : NONE;
    case LINK_REPLAY: return link_item(gpu->nvlink_replay_errors.item, gpu, scope);
    case LINK_RECOVERY: return link_item(gpu->nvlink_recovery_errors.item, gpu, scope);
    case LINK_CRC: return link_item(gpu->nvlink_crc_errors.item, gpu, scope);
    case LINK_SPEED: return scope < links && gpu->nvlink_state.item[scope] ? gpu->nvlink_speed : NONE;
    case LINK_STATE: return link_item(gpu->nvlink_state.item, gpu, scope);
    case LINK_VERSION: return scope < links ? gpu->nvlink_version : NONE;
    case C2C_LINK_COUNT: return gpu->c2c_enabled == 1 ? 10 : NONE;
    case RESETLESS_MIG: return gpu->mig == NONE ? 0 : !gpu->mig_needs_reset;
    case POWER_AVERAGE:
    case POWER_INSTANT: return gpu->power_usage;
    case POWER_MIN_LIMIT: return gpu->power_limit_min;
    case POWER_MAX_LIMIT: return gpu->power_limit_max;
    case POWER_DEFAULT_LIMIT: return gpu->power_limit_default;
    case POWER_CURRENT_LIMIT:
    case POWER_REQUESTED_LIMIT: return gpu->power_limit;
    case MIG_QUERY_WITHOUT_MODE: return gpu->mig != NONE && !machine->system.mig_query_needs_mode;
    case RESET_STATUS: return gpu->recovery_action == 1;
    case DRAIN_STATUS: return gpu->recovery_action == 4;
    case RECOVERY_ACTION: return gpu->recovery_action;
    default: return id >= PCIE_FIRST_ERROR && id <= PCIE_LAST_ERROR ? 0 : link_field(gpu, id);
    }
}

static bool is_wide(unsigned int id)
{
    return (id >= ECC_CORRECTED_VOLATILE && id <= ECC_UNCORRECTED_AGGREGATE) || id == TOTAL_ENERGY || id == ENERGY ||
           (id >= LINK_CRC_FIRST && id <= LINK_RECOVERY_TOTAL) || (id >= LINK_REPLAY && id <= LINK_CRC);
}

static bool is_lacking(const struct gpu *gpu, unsigned int id)
{
    for (uint32_t i = 0; i < gpu->fields_lacking.count; i++)
        if (gpu->fields_lacking.item[i] == id)
            return true;
    return false;
}

static void fill(const struct machine *machine, const struct gpu *gpu, nvmlFieldValue_t *field)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    field->timestamp = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
    field->latency_usec = 0;
    field->value_type = is_wide(field->field_id) ? VALUE_ULLONG : VALUE_UINT;
    field->value.as_ullong = 0;
    if (field->field_id < FIRST_FIELD || field->field_id > LAST_FIELD) {
        field->result = NVML_ERROR_INVALID_ARGUMENT;
        return;
    }
    uint64_t value =
        is_lacking(gpu, field->field_id) ? NONE : number(machine, gpu, field->field_id, field->scope_id);
    bool wide = field->value_type == VALUE_ULLONG;
    field->result = value == UINT64_MAX || value == NONE ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
    if (field->result == NVML_SUCCESS && wide)
        field->value.as_ullong = value;
    else if (field->result == NVML_SUCCESS)
        field->value.as_uint = (unsigned int)value;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    BEGIN_GPU(device);
    REQUIRE(values && count > 0, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++)
        fill(call.machine, gpu, &values[i]);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceClearFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    BEGIN_ROOT(device);
    (void)gpu;
    REQUIRE(values && count > 0, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++)
        values[i].result = NVML_ERROR_NOT_SUPPORTED;
    END(NVML_SUCCESS);
}
