/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* The part of NVML's binary interface that the simulator answers, as on x86-64 and arm64. */
#ifndef ABI_H
#define ABI_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_ALREADY_INITIALIZED = 5,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_INSUFFICIENT_POWER = 8,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_IRQ_ISSUE = 11,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_CORRUPTED_INFOROM = 14,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_DEPRECATED = 26,
    NVML_ERROR_NOT_READY = 27,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_INVALID_STATE = 29,
    NVML_ERROR_RESET_TYPE_NOT_SUPPORTED = 30,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

/* Handles are numbers that only the simulator reads; no client may look behind them. */
typedef uintptr_t nvmlDevice_t;
typedef uintptr_t nvmlGpuInstance_t;
typedef uintptr_t nvmlComputeInstance_t;

/* The word with which a client names the layout it was compiled for. */
#define VERSION(type, number) ((unsigned int)(sizeof(type) | ((unsigned int)(number) << 24)))

typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned int version, domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
    char bus_id[32];
} nvmlPciInfoExt_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlBAR1Memory_t;

typedef struct {
    unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned int pid;
    unsigned long long used_gpu_memory;
    unsigned int gpu_instance_id, compute_instance_id;
} nvmlProcessInfo_t;

typedef struct {
    unsigned int pid;
    unsigned long long used_gpu_memory;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned int pid;
    unsigned long long used_gpu_memory;
    unsigned int gpu_instance_id, compute_instance_id;
    unsigned long long used_protected_memory;
} nvmlProcessDetail_v1_t;

typedef struct {
    unsigned int version, mode, count;
    nvmlProcessDetail_v1_t *processes;
} nvmlProcessDetailList_t;

typedef struct {
    unsigned int field_id, scope_id;
    long long timestamp, latency_usec;
    unsigned int value_type;
    nvmlReturn_t result;
    union {
        double as_double;
        unsigned int as_uint;
        int as_int;
        unsigned long long as_ullong;
        long long as_llong;
    } value;
} nvmlFieldValue_t;

enum { VALUE_DOUBLE = 0, VALUE_UINT = 1, VALUE_ULLONG = 3, VALUE_LLONG = 4, VALUE_INT = 5, VALUE_USHORT = 6 };

typedef struct {
    unsigned int version, sensor;
    int temperature;
} nvmlTemperature_t;

typedef struct {
    unsigned int version;
    int margin;
} nvmlMarginTemperature_t;

typedef struct {
    unsigned int version, value;
} nvmlDeviceAddressingMode_t;

typedef struct {
    unsigned int version;
    char branch[80];
} nvmlSystemDriverBranchInfo_t;

typedef struct {
    unsigned int environment, cc_feature, dev_tools_mode;
} nvmlConfComputeSystemState_t;

typedef struct {
    unsigned int cpu_caps, gpus_caps;
} nvmlConfComputeSystemCaps_t;

typedef struct {
    unsigned int version, environment, cc_feature, dev_tools_mode, multi_gpu_mode;
} nvmlSystemConfComputeSettings_t;

typedef struct {
    unsigned long long protected_kib, unprotected_kib;
} nvmlConfComputeMemSizeInfo_t;

typedef struct {
    unsigned char cluster_uuid[16];
    nvmlReturn_t status;
    unsigned int clique_id, state;
} nvmlGpuFabricInfo_t;

typedef struct {
    unsigned int version;
    unsigned char cluster_uuid[16];
    nvmlReturn_t status;
    unsigned int clique_id, state, health_mask;
} nvmlGpuFabricInfo_v2_t;

typedef struct {
    unsigned int version;
    unsigned char cluster_uuid[16];
    nvmlReturn_t status;
    unsigned int clique_id, state, health_mask;
    unsigned char health_summary;
} nvmlGpuFabricInfo_v3_t;

typedef struct {
    unsigned int max, high, partial, low, none;
} nvmlRowRemapperHistogramValues_t;

typedef struct {
    unsigned long long l1_cache, l2_cache, device_memory, register_file;
} nvmlEccErrorCounts_t;

typedef struct {
    unsigned int version;
    unsigned long long aggregate_parity, aggregate_sec_ded, aggregate_corrected;
    unsigned long long volatile_parity, volatile_sec_ded, volatile_corrected;
    unsigned long long bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
    unsigned int threshold_exceeded;
} nvmlEccSramErrorStatus_t;

typedef struct {
    unsigned long long reference_time, violation_time;
} nvmlViolationTime_t;

typedef struct {
    unsigned int version, scope, milliwatts;
} nvmlPowerValue_v2_t;

typedef struct {
    unsigned int version, cap_mask;
} nvmlDeviceCapabilities_t;

typedef struct {
    unsigned int is_enabled;
} nvmlC2cModeInfo_t;

typedef struct {
    unsigned int version, is_supported;
} nvmlGpmSupport_t;

typedef struct {
    unsigned int version, type;
    union {
        char text[41];
        unsigned char bytes[16];
    } value;
} nvmlUUID_t;

typedef struct {
    unsigned int start, size;
} nvmlPlacement_t;

/* The counts which every version of the GPU instance profile has, in this order. */
#define PROFILE_COUNTS                                                                                              \
    unsigned int slice_count, instance_count, multiprocessor_count, copy_engine_count, decoder_count, encoder_count, \
        jpeg_count, ofa_count;                                                                                       \
    unsigned long long memory_mib;

typedef struct {
    unsigned int id, is_p2p_supported;
    PROFILE_COUNTS
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
    unsigned int version, id, is_p2p_supported;
    PROFILE_COUNTS
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;

typedef struct {
    unsigned int version, id;
    PROFILE_COUNTS
    char name[96];
    unsigned int capabilities;
} nvmlGpuInstanceProfileInfo_v3_t;

typedef struct {
    nvmlDevice_t device;
    unsigned int id, profile_id;
    nvmlPlacement_t placement;
} nvmlGpuInstanceInfo_t;

#define COMPUTE_PROFILE_COUNTS                                                                        \
    unsigned int id, slice_count, instance_count, multiprocessor_count, copy_engine_count, decoder_count, \
        encoder_count, jpeg_count, ofa_count;

typedef struct {
    COMPUTE_PROFILE_COUNTS
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
    unsigned int version;
    COMPUTE_PROFILE_COUNTS
    char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;

typedef struct {
    unsigned int version;
    COMPUTE_PROFILE_COUNTS
    char name[96];
    unsigned int capabilities;
} nvmlComputeInstanceProfileInfo_v3_t;

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpu_instance;
    unsigned int id, profile_id;
    nvmlPlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct {
    unsigned int multiprocessor_count, copy_engine_count, decoder_count, encoder_count, jpeg_count, ofa_count,
        gpu_instance_slices, compute_instance_slices;
    unsigned long long memory_mib;
} nvmlDeviceAttributes_t;

_Static_assert(sizeof(nvmlPciInfo_t) == 68, "nvmlPciInfo_t");
_Static_assert(VERSION(nvmlMemory_v2_t, 2) == 0x02000028, "nvmlMemory_v2_t");
_Static_assert(VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2) == 0x02000098, "nvmlGpuInstanceProfileInfo_v2_t");
_Static_assert(VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2) == 0x02000088, "nvmlComputeInstanceProfileInfo_v2_t");
_Static_assert(sizeof(nvmlGpuInstanceProfileInfo_t) == 48, "nvmlGpuInstanceProfileInfo_t");
_Static_assert(sizeof(nvmlComputeInstanceInfo_t) == 32, "nvmlComputeInstanceInfo_t");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "nvmlProcessInfo_t");
_Static_assert(VERSION(nvmlGpuFabricInfo_v3_t, 3) == 0x03000028, "nvmlGpuFabricInfo_v3_t");
_Static_assert(VERSION(nvmlEccSramErrorStatus_t, 1) == 0x01000068, "nvmlEccSramErrorStatus_t");
_Static_assert(VERSION(nvmlUUID_t, 1) == 0x01000034, "nvmlUUID_t");

typedef struct {
    unsigned long long timestamp;
    union {
        unsigned int as_uint;
        unsigned long long as_ullong;
    } value;
} nvmlSample_t;

typedef struct {
    unsigned int version, count;
    unsigned long long since;
    void *processes;
} nvmlProcessesUtilizationInfo_t;

typedef struct {
    unsigned int flags;
    struct {
        unsigned int present, percent, increase_threshold, decrease_threshold;
    } utilization[8];
} nvmlGpuDynamicPstatesInfo_t;

typedef struct {
    unsigned int count;
    struct {
        int controller, lowest, highest, current, target;
    } sensor[3];
} nvmlGpuThermalSettings_t;

typedef struct {
    unsigned int version;
    char text[2048];
} nvmlText_t; /* of performance modes, and of clocks */

typedef struct {
    unsigned int version, channel_pending, tpc_pending;
} nvmlRepairStatus_t;

typedef struct {
    unsigned int version, count;
    void *entries;
} nvmlEccSramUniqueErrors_t;

typedef struct {
    unsigned int version;
    unsigned long long value;
} nvmlPdi_t;

typedef struct {
    unsigned int version;
    unsigned long long attacker_advantage;
} nvmlConfComputeKeyRotation_t;

typedef struct {
    unsigned int oldest, newest;
} nvmlVgpuVersion_t;

typedef struct {
    int is_supported;
    unsigned int count;
    struct {
        int code;
        unsigned int state;
        char license[128], product[128];
        unsigned int enabled;
        struct {
            unsigned int year;
            unsigned short month, day, hour, minute, second;
            unsigned char status;
        } expiry;
    } feature[3];
} nvmlGridLicensableFeatures_v4_t;

#endif
