/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* nvmlDeviceGetFieldValues: many readings in one call, each with its own result. */
#include "simulator.h"

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
    PCIE_RECOVERY = 169,
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
    SHUTDOWN_MARGIN = 193,
    SLOWDOWN_MARGIN = 194,
    MEMORY_MAX_MARGIN = 195,
    GPU_MAX_MARGIN = 196,
    PCIE_SENT = 197,
    PCIE_RECEIVED = 198,
    MIG_QUERY_WITHOUT_MODE = 199,
    RESET_STATUS = 226,
    DRAIN_STATUS = 227,
    ATOMICS_OUT = 228,
    ATOMICS_IN = 229,
    RECOVERY_ACTION = 230,
    REMAPPED_CORRECTED_INACTIVE = 301,
    REMAPPED_UNCORRECTED_INACTIVE = 302
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

/* How long the clocks were held down, by the cause. */
static bool is_time_of_limit(unsigned int id)
{
    return (id >= 74 && id <= 81) || (id >= 269 && id <= 271);
}

/* How far a limit is from the GPU's or the memory's highest temperature in operation, a negative number beyond it. */
static uint64_t margin(const struct gpu *gpu, uint32_t highest, uint32_t limit)
{
    if (gpu->architecture < ARCH_HOPPER || highest == NONE || limit == NONE)
        return UINT64_MAX;
    return (uint32_t)(highest - limit);
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
    case SWITCH_LINK_COUNT: return gpu->nvlink_remote == REMOTE_SWITCH ? sum(gpu->nvlink_state.item, links) : 0;
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
    case PCIE_RECOVERY:
    case PCIE_SENT:
    case PCIE_RECEIVED:
    case ATOMICS_OUT:
    case ATOMICS_IN: return gpu->architecture >= ARCH_HOPPER ? 0 : NONE;
    case REMAPPED_CORRECTED_INACTIVE:
    case REMAPPED_UNCORRECTED_INACTIVE: return gpu->remapped_corrected == NONE ? NONE : 0;
    case SHUTDOWN_MARGIN: return margin(gpu, gpu->temperature_gpu_max, gpu->temperature_shutdown);
    case SLOWDOWN_MARGIN: return margin(gpu, gpu->temperature_gpu_max, gpu->temperature_slowdown);
    case MEMORY_MAX_MARGIN: return margin(gpu, gpu->temperature_memory_max, gpu->temperature_memory_max);
    case GPU_MAX_MARGIN: return margin(gpu, gpu->temperature_gpu_max, gpu->temperature_gpu_max);
    case MIG_QUERY_WITHOUT_MODE: return gpu->mig != NONE && !machine->system.mig_query_needs_mode;
    case RESET_STATUS: return gpu->recovery_action == 1;
    case DRAIN_STATUS: return gpu->recovery_action == 4;
    case RECOVERY_ACTION: return gpu->recovery_action;
    default:
        if (is_time_of_limit(id))
            return gpu->architecture >= ARCH_HOPPER ? 0 : NONE;
        return id >= PCIE_FIRST_ERROR && id <= PCIE_LAST_ERROR ? 0 : link_field(gpu, id);
    }
}

/* The types of values, as driver 580.159.04 gives them for an H200 whose NVLinks are off: those of an error too, where
 * a double is what nothing was written into. Of links that are on, no type was recorded. All others are VALUE_UINT. */
static const struct {
    unsigned int first, last, type;
} types[] = {
    {1, 31, VALUE_ULLONG},     {32, 73, VALUE_DOUBLE},    {74, 81, VALUE_ULLONG},    {83, 83, VALUE_ULLONG},
    {84, 90, VALUE_DOUBLE},    {92, 93, VALUE_ULLONG},    {96, 137, VALUE_DOUBLE},   {138, 145, VALUE_ULLONG},
    {147, 160, VALUE_DOUBLE},  {161, 163, VALUE_ULLONG},  {191, 191, VALUE_ULLONG},  {193, 196, VALUE_INT},
    {201, 222, VALUE_DOUBLE},  {235, 250, VALUE_DOUBLE},  {254, 258, VALUE_DOUBLE},  {260, 262, VALUE_DOUBLE},
    {265, 267, VALUE_DOUBLE},  {269, 273, VALUE_ULLONG},  {274, 278, VALUE_DOUBLE},  {279, 279, VALUE_USHORT},
    {281, 281, VALUE_DOUBLE},  {282, 283, VALUE_USHORT},  {284, 285, VALUE_DOUBLE},  {286, 287, VALUE_USHORT},
    {288, 300, VALUE_DOUBLE},  {301, 302, VALUE_ULLONG},
};

static unsigned int type_of(const struct gpu *gpu, unsigned int id)
{
    if (gpu->nvlink_state.count && id >= LINK_CRC_FIRST && id <= LINK_RECOVERY_TOTAL)
        return VALUE_ULLONG;
    if (gpu->nvlink_state.count && ((id >= LINK_SPEED_FIRST && id <= LINK_SPEED_COMMON) || id == SWITCH_LINK_COUNT))
        return VALUE_UINT;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (id >= types[i].first && id <= types[i].last)
            return types[i].type;
    return VALUE_UINT;
}

/* Fields that came after the driver that was recorded, but for some that it got as well. */
static bool is_unknown(const struct machine *machine, unsigned int id)
{
    bool newer = id == 274 || (id >= 289 && id <= 293) || (id >= 296 && id <= 300);
    return id < FIRST_FIELD || id > LAST_FIELD || (newer && driver_branch(machine) <= RECORDED_BRANCH);
}

static bool is_lacking(const struct gpu *gpu, unsigned int id)
{
    for (uint32_t i = 0; i < gpu->fields_lacking.count; i++)
        if (gpu->fields_lacking.item[i] == id)
            return true;
    return false;
}

/* The value in its type. */
static void put_number(nvmlFieldValue_t *field, uint64_t value)
{
    switch (field->value_type) {
    case VALUE_DOUBLE: field->value.as_double = (double)value; break;
    case VALUE_ULLONG: field->value.as_ullong = value; break;
    case VALUE_INT: field->value.as_int = (int)(uint32_t)value; break;
    default: field->value.as_uint = (unsigned int)value;
    }
}

static void fill(const struct machine *machine, const struct gpu *gpu, nvmlFieldValue_t *field)
{
    unsigned int id = field->field_id;
    field->timestamp = (long long)now_usec();
    field->latency_usec = 0;
    field->value_type = is_unknown(machine, id) ? VALUE_DOUBLE : type_of(gpu, id);
    field->value.as_ullong = 0;
    uint64_t value = is_lacking(gpu, id) ? NONE : number(machine, gpu, id, field->scope_id);
    if (is_unknown(machine, id))
        field->result = NVML_ERROR_INVALID_ARGUMENT;
    else if (value == UINT64_MAX || value == NONE)
        field->result = NVML_ERROR_NOT_SUPPORTED;
    else {
        field->result = NVML_SUCCESS;
        put_number(field, value);
    }
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
