/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* Which GPU it is: handles, identity, PCI, memory. */
#include "simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024ull
#define MIB (1024 * KIB)

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    BEGIN(false);
    END(put_u32(count, call.machine->system.gpu_count));
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

static nvmlReturn_t give_handle(struct call *call, uint32_t index, nvmlDevice_t *device)
{
    struct target target = {.gpu = &call->machine->gpu[index]};
    call->gpu = index;
    if (target.gpu->lost)
        return NVML_ERROR_GPU_IS_LOST;
    *device = handle_of(call->machine, DEVICE, &target);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    BEGIN(false);
    REQUIRE(device && index < call.machine->system.gpu_count, NVML_ERROR_INVALID_ARGUMENT);
    END(give_handle(&call, index, device));
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* From the GPU's UUID and the ids, so that an instance with other ids has another UUID. */
void mig_uuid(const struct machine *machine, const struct target *target, char *uuid, size_t size)
{
    char seed[96];
    if (machine->system.mig_uuid_names_parent) {
        snprintf(uuid, size, "MIG-%s/%u/%u", target->gpu->uuid, instance_id(target), compute_id(target));
        return;
    }
    uint32_t part[4];
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(seed, sizeof seed, "%u/%s/%u/%u", i, target->gpu->uuid, instance_id(target), compute_id(target));
        part[i] = symbol_hash(seed);
        part[i] ^= part[i] >> 15;
        part[i] *= 0x2c1b3c6du;
        part[i] ^= part[i] >> 13;
    }
    snprintf(uuid, size, "MIG-%08x-%04x-5%03x-8%03x-%04x%08x", part[0], part[1] >> 16, part[1] & 0xfff, part[2] >> 20,
             part[2] & 0xffff, part[3]);
}

static void uuid_of(const struct machine *machine, const struct target *target, char *uuid, size_t size)
{
    if (target->compute)
        mig_uuid(machine, target, uuid, size);
    else
        snprintf(uuid, size, "%s", target->gpu->uuid);
}

static nvmlReturn_t find_uuid(struct call *call, const char *wanted, nvmlDevice_t *device)
{
    struct machine *machine = call->machine;
    char uuid[96];
    for (uint32_t index = 0; index < machine->system.gpu_count; index++) {
        struct target target = {.gpu = &machine->gpu[index]};
        if (strcasecmp(target.gpu->uuid, wanted) == 0)
            return give_handle(call, index, device);
        for (uint32_t i = 0; i < MAX_INSTANCES * MAX_COMPUTE; i++) {
            target.instance = &target.gpu->instance[i / MAX_COMPUTE];
            target.compute = &target.instance->compute[i % MAX_COMPUTE];
            if (!target.compute->birth)
                continue;
            mig_uuid(machine, &target, uuid, sizeof uuid);
            if (strcasecmp(uuid, wanted) == 0) {
                *device = handle_of(machine, MIG_DEVICE, &target);
                return NVML_SUCCESS;
            }
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    BEGIN(false);
    REQUIRE(uuid && device, NVML_ERROR_INVALID_ARGUMENT);
    END(find_uuid(&call, uuid, device));
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
    enum { ASCII = 1, BINARY = 2 };
    char text[48];
    BEGIN(false);
    REQUIRE(uuid && device, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(uuid->version == VERSION(nvmlUUID_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(uuid->type == ASCII || uuid->type == BINARY, NVML_ERROR_INVALID_ARGUMENT);
    const unsigned char *b = uuid->value.bytes;
    if (uuid->type == ASCII)
        snprintf(text, sizeof text, "%.*s", (int)sizeof uuid->value.text, uuid->value.text);
    else
        snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    END(find_uuid(&call, text, device));
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    BEGIN(false);
    REQUIRE(serial && device, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t index = 0; index < call.machine->system.gpu_count; index++)
        if (strcmp(call.machine->gpu[index].serial, serial) == 0)
            END(give_handle(&call, index, device));
    END(NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned int domain = 0, bus, slot, function;
    BEGIN(false);
    REQUIRE(bus_id && device, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4 ||
                (domain = 0, sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) == 3),
            NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t index = 0; index < call.machine->system.gpu_count; index++) {
        const struct gpu *gpu = &call.machine->gpu[index];
        if (gpu->pci_domain == domain && gpu->pci_bus == bus && gpu->pci_device == slot && function == 0)
            END(give_handle(&call, index, device));
    }
    END(NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    char full[160], profile[48];
    BEGIN_ANY_DEVICE(device);
    if (target.compute)
        snprintf(full, sizeof full, "%s MIG %s", gpu->name,
                 profile_name(call.machine, &target, profile, sizeof profile));
    else
        snprintf(full, sizeof full, "%s", gpu->name);
    END(put_text(name, length, full));
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    char found[96];
    BEGIN_ANY_DEVICE(device);
    (void)gpu;
    uuid_of(call.machine, &target, found, sizeof found);
    END(put_text(uuid, length, found));
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    BEGIN_ANY_DEVICE(device);
    END(put_u32(index, target.compute ? target.compute->mig_index : gpu_index(call.machine, gpu)));
}

static nvmlReturn_t put_supported_text(char *out, unsigned int length, const char *text)
{
    return *text ? put_text(out, length, text) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    BEGIN_GPU(device);
    END(put_supported_text(serial, length, gpu->serial));
}

EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    BEGIN_GPU(device);
    END(put_supported_text(version, length, gpu->vbios_version));
}

EXPORT nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    BEGIN_GPU(device);
    END(put_supported_text(version, length, gpu->inforom_image));
}

EXPORT nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, unsigned int object, char *version,
                                                unsigned int length)
{
    BEGIN_GPU(device);
    const char *versions[] = {gpu->inforom_oem, gpu->inforom_ecc, gpu->inforom_power, ""};
    REQUIRE(object < sizeof versions / sizeof versions[0], NVML_ERROR_INVALID_ARGUMENT);
    END(put_supported_text(version, length, versions[object]));
}

EXPORT nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device)
{
    BEGIN_GPU(device);
    END(gpu->inforom_image[0] ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *number, unsigned int length)
{
    BEGIN_GPU(device);
    END(put_supported_text(number, length, gpu->board_part_number));
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    BEGIN_GPU(device);
    (void)gpu;
    END(put_supported_text(version, 64, call.machine->system.gsp_firmware_version));
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled, unsigned int *by_default)
{
    BEGIN_GPU(device);
    (void)gpu;
    REQUIRE(enabled && by_default, NVML_ERROR_INVALID_ARGUMENT);
    *enabled = *by_default = call.machine->system.gsp_firmware_version[0] != '\0';
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    BEGIN_ANY_DEVICE(device);
    REQUIRE(major && minor, NVML_ERROR_INVALID_ARGUMENT);
    *major = (int)gpu->compute_major;
    *minor = (int)gpu->compute_minor;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *several)
{
    BEGIN_GPU(device);
    (void)gpu;
    END(put_u32(several, 0));
}

EXPORT nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int *same)
{
    BEGIN_GPU(one);
    struct target second;
    begun = resolve(&call, other, DEVICE, &second);
    REQUIRE(begun == NVML_SUCCESS, begun);
    END(put_u32((unsigned int *)same, gpu->board_id == second.gpu->board_id));
}

void pci_bus_id(const struct gpu *gpu, char id[32])
{
    snprintf(id, 32, "%08X:%02X:%02X.0", gpu->pci_domain, gpu->pci_bus & 0xff, gpu->pci_device & 0xff);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    BEGIN_ANY_DEVICE(device);
    REQUIRE(pci, NVML_ERROR_INVALID_ARGUMENT);
    *pci = (nvmlPciInfo_t){.domain = gpu->pci_domain, .bus = gpu->pci_bus, .device = gpu->pci_device,
                           .pci_device_id = gpu->pci_device_id, .pci_subsystem_id = gpu->pci_subsystem_id};
    pci_bus_id(gpu, pci->bus_id);
    strcpy(pci->bus_id_legacy, pci->bus_id + 4);
    END(NVML_SUCCESS);
}

/* The structs of old: they end before the long address, the first one before the subsystem, too. */
static nvmlReturn_t put_old_pci_info(const struct gpu *gpu, nvmlPciInfo_t *pci, bool with_subsystem)
{
    char bus_id[32];
    if (!pci)
        return NVML_ERROR_INVALID_ARGUMENT;
    pci_bus_id(gpu, bus_id);
    strcpy(pci->bus_id_legacy, bus_id + 4);
    pci->domain = gpu->pci_domain;
    pci->bus = gpu->pci_bus;
    pci->device = gpu->pci_device;
    pci->pci_device_id = gpu->pci_device_id;
    if (with_subsystem)
        pci->pci_subsystem_id = gpu->pci_subsystem_id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    BEGIN_ANY_DEVICE(device);
    END(put_old_pci_info(gpu, pci, true));
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    BEGIN_ANY_DEVICE(device);
    END(put_old_pci_info(gpu, pci, false));
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
    BEGIN_ANY_DEVICE(device);
    REQUIRE(pci, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(pci->version == VERSION(nvmlPciInfoExt_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    *pci = (nvmlPciInfoExt_t){.version = pci->version, .domain = gpu->pci_domain, .bus = gpu->pci_bus,
                              .device = gpu->pci_device, .pci_device_id = gpu->pci_device_id,
                              .pci_subsystem_id = gpu->pci_subsystem_id, .base_class = gpu->pci_base_class,
                              .sub_class = gpu->pci_sub_class};
    pci_bus_id(gpu, pci->bus_id);
    END(NVML_SUCCESS);
}

/* What clients and, with MIG on, other things use; of one instance when the target is a MIG device. */
static void memory_of(const struct machine *machine, const struct target *target, nvmlMemory_v2_t *memory)
{
    const struct gpu *gpu = target->gpu;
    uint64_t total = gpu->memory_mib * MIB, reserved = gpu->memory_reserved_kib * KIB;
    uint64_t used = gpu->memory_used_mib * MIB;
    uint32_t index = gpu_index(machine, gpu);
    if (target->instance) {
        total = gpu->profile[target->instance->profile].memory_mib * MIB;
        reserved = 0;
        used = 12 * MIB;
    }
    for (const struct client *client = machine->client; client < machine->client + MAX_CLIENTS; client++)
        if (client->id && client->gpu == index &&
            (!target->instance || client->gpu_instance == instance_id(target)))
            used += client->memory_mib * MIB;
    if (used > total - reserved)
        used = total - reserved;
    memory->total = total;
    memory->reserved = reserved;
    memory->used = used;
    memory->free = total - reserved - used;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlMemory_v2_t found;
    BEGIN_ANY_DEVICE(device);
    (void)gpu;
    REQUIRE(memory, NVML_ERROR_INVALID_ARGUMENT);
    memory_of(call.machine, &target, &found);
    *memory = (nvmlMemory_t){found.total, found.free, found.used + found.reserved};
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    BEGIN_ANY_DEVICE(device);
    (void)gpu;
    REQUIRE(memory, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(memory->version == VERSION(nvmlMemory_v2_t, 2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory_of(call.machine, &target, memory);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    BEGIN_ANY_DEVICE(device);
    REQUIRE(memory, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->bar1_mib != NONE, NVML_ERROR_NOT_SUPPORTED);
    uint64_t total = gpu->bar1_mib;
    if (target.instance)
        total = total * gpu->profile[target.instance->profile].memory_slices / gpu->memory_slices;
    memory->total = total * MIB;
    memory->used = gpu->bar1_used_kib * KIB;
    memory->free = memory->total - memory->used;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCapabilities(nvmlDevice_t device, nvmlDeviceCapabilities_t *capabilities)
{
    BEGIN_GPU(device);
    (void)gpu;
    REQUIRE(capabilities, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(capabilities->version == VERSION(nvmlDeviceCapabilities_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    capabilities->cap_mask = 0;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t *mode)
{
    BEGIN_GPU(device);
    REQUIRE(mode, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(mode->version == VERSION(nvmlDeviceAddressingMode_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    END(put_u32(&mode->value, gpu->addressing_mode));
}

EXPORT nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_t *info)
{
    BEGIN_GPU(device);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(&info->is_enabled, gpu->c2c_enabled));
}

EXPORT nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t device, nvmlConfComputeMemSizeInfo_t *info)
{
    BEGIN_GPU(device);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->architecture >= ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);
    uint64_t kib = (uint64_t)gpu->memory_mib * 1024 - gpu->memory_reserved_kib;
    bool protected = call.machine->system.cc_feature != 0;
    *info = (nvmlConfComputeMemSizeInfo_t){protected ? kib : 0, protected ? 0 : kib};
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    BEGIN_ANY_DEVICE(device);
    REQUIRE(support, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(support->version == 1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    support->is_supported = gpu->architecture >= ARCH_HOPPER;
    END(NVML_SUCCESS);
}

/* The numbers which the state holds as NVML gives them. */
#define NUMBER_OF_GPU(symbol, expression)                                \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *value) \
    {                                                                    \
        BEGIN_GPU(device);                                               \
        END(put_u32(value, gpu->expression));                            \
    }

#define NUMBER_OF_ANY_DEVICE(symbol, expression)                         \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *value) \
    {                                                                    \
        BEGIN_ANY_DEVICE(device);                                        \
        END(put_u32(value, gpu->expression));                            \
    }

NUMBER_OF_ANY_DEVICE(nvmlDeviceGetBrand, brand)
NUMBER_OF_ANY_DEVICE(nvmlDeviceGetArchitecture, architecture)
NUMBER_OF_ANY_DEVICE(nvmlDeviceGetMinorNumber, minor_number)
NUMBER_OF_GPU(nvmlDeviceGetBoardId, board_id)
NUMBER_OF_GPU(nvmlDeviceGetModuleId, module_id)
NUMBER_OF_GPU(nvmlDeviceGetInforomConfigurationChecksum, inforom_checksum)
NUMBER_OF_GPU(nvmlDeviceGetNumGpuCores, cores)
NUMBER_OF_GPU(nvmlDeviceGetMemoryBusWidth, memory_bus_width)
NUMBER_OF_GPU(nvmlDeviceGetIrqNum, irq)
NUMBER_OF_GPU(nvmlDeviceGetDisplayMode, display_mode)
NUMBER_OF_GPU(nvmlDeviceGetDisplayActive, display_active)
NUMBER_OF_GPU(nvmlDeviceGetNumaNodeId, gpu_node)
NUMBER_OF_GPU(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation_max)
NUMBER_OF_GPU(nvmlDeviceGetGpuMaxPcieLinkGeneration, pcie_generation_gpu_max)
NUMBER_OF_GPU(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max)
NUMBER_OF_GPU(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
NUMBER_OF_GPU(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
NUMBER_OF_GPU(nvmlDeviceGetPcieReplayCounter, pcie_replay)
NUMBER_OF_GPU(nvmlDeviceGetPcieLinkMaxSpeed, pcie_generation_max)

EXPORT nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN_ANY_DEVICE(device);
    END(put_u32(mode, gpu->passthrough ? PASSTHROUGH : gpu->virtualization_mode));
}

EXPORT nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned int *speed)
{
    static const unsigned int mbps[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
    BEGIN_GPU(device);
    END(put_u32(speed, gpu->pcie_generation < 7 ? mbps[gpu->pcie_generation] : NONE));
}

EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter, unsigned int *value)
{
    BEGIN_GPU(device);
    (void)gpu;
    REQUIRE(counter < 2, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(value, 0));
}

EXPORT nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, unsigned int *type)
{
    enum { PCIE = 2 };
    BEGIN_GPU(device);
    (void)gpu;
    END(put_u32(type, PCIE));
}

/* Where there are no licences, as recorded on an H200 in a virtual machine. */
EXPORT nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device,
                                                           nvmlGridLicensableFeatures_v4_t *features)
{
    BEGIN_GPU(device);
    REQUIRE(features, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->architecture >= ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);
    *features = (nvmlGridLicensableFeatures_v4_t){0};
    END(NVML_SUCCESS);
}

/* Windows, old boards, virtual GPUs. */
#define NOT_SUPPORTED_2(symbol)                                                            \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *one, unsigned int *two) \
    {                                                                                      \
        BEGIN_ANY_DEVICE(device);                                                          \
        (void)gpu;                                                                         \
        END(one && two ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT);          \
    }

NOT_SUPPORTED_2(nvmlDeviceGetDriverModel)
NOT_SUPPORTED_2(nvmlDeviceGetDriverModel_v2)
NOT_SUPPORTED_2(nvmlDeviceGetGpuOperationMode)
NOT_SUPPORTED_2(nvmlDeviceGetAutoBoostedClocksEnabled)

#define NOT_SUPPORTED_1(symbol)                                            \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, void *out)             \
    {                                                                      \
        BEGIN_GPU(device);                                                 \
        (void)gpu;                                                         \
        END(out ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT); \
    }

NOT_SUPPORTED_1(nvmlDeviceGetBridgeChipInfo)
NOT_SUPPORTED_1(nvmlDeviceGetHostVgpuMode)
NOT_SUPPORTED_1(nvmlDeviceGetPlatformInfo)
