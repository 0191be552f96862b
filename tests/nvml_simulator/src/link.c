/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* NVLink and the fabric. */
#include "simulator.h"

#include <stdio.h>
#include <string.h>

#define MAX_LINKS 36

/* Links beyond those of the product are wrong arguments where it has any, else unsupported. */
#define BEGIN_LINK(device, link, change) BEGIN_LINK_BELOW(device, link, MAX_LINKS, change)
#define BEGIN_LINK_BELOW(device, link, most, change)                                   \
    BEGIN_TARGET(device, DEVICE, change);                                              \
    REQUIRE((link) < (most), NVML_ERROR_INVALID_ARGUMENT);                             \
    REQUIRE(gpu->nvlink_state.count, NVML_ERROR_NOT_SUPPORTED);                        \
    REQUIRE((link) < gpu->nvlink_state.count, NVML_ERROR_INVALID_ARGUMENT)

static bool is_linked(const struct gpu *gpu)
{
    for (uint32_t link = 0; link < gpu->nvlink_state.count; link++)
        if (gpu->nvlink_state.item[link])
            return true;
    return false;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *active)
{
    BEGIN_LINK(device, link, false);
    END(put_u32(active, gpu->nvlink_state.item[link]));
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
    BEGIN_LINK(device, link, false);
    END(put_u32(version, gpu->nvlink_version));
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, unsigned int capability,
                                                  unsigned int *result)
{
    enum { P2P, SYSMEM_ACCESS, P2P_ATOMICS, SYSMEM_ATOMICS, SLI, VALID };
    enum { LINKS_OF_NVML = 18 };
    BEGIN_LINK_BELOW(device, link, LINKS_OF_NVML, false);
    REQUIRE(capability <= VALID, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(result, capability != SLI && gpu->nvlink_state.item[link]));
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, unsigned int counter,
                                                    unsigned long long *value)
{
    enum { REPLAY, RECOVERY, CRC_FLIT, CRC_DATA, ECC_DATA };
    BEGIN_LINK(device, link, false);
    REQUIRE(value && counter <= ECC_DATA, NVML_ERROR_INVALID_ARGUMENT);
    const uint32_t values[] = {gpu->nvlink_replay_errors.item[link], gpu->nvlink_recovery_errors.item[link],
                               gpu->nvlink_crc_errors.item[link], 0, 0};
    *value = values[counter];
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceResetNvLinkErrorCounters(nvmlDevice_t device, unsigned int link)
{
    BEGIN_LINK(device, link, true);
    REQUIRE(is_root(), NVML_ERROR_NO_PERMISSION);
    change_gpu(call.state, gpu);
    gpu->nvlink_replay_errors.item[link] = gpu->nvlink_recovery_errors.item[link] = 0;
    gpu->nvlink_crc_errors.item[link] = 0;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, unsigned int *type)
{
    BEGIN_LINK(device, link, false);
    REQUIRE(gpu->nvlink_state.item[link], NVML_ERROR_NOT_SUPPORTED);
    END(put_u32(type, gpu->nvlink_remote));
}

/* The GPUs, as bits, at the other ends of a GPU's links, through switches or not; not the GPU itself. */
uint32_t linked_gpus(const struct machine *machine, uint32_t index)
{
    const struct gpu *gpu = &machine->gpu[index];
    uint32_t linked = 0;
    if (!is_linked(gpu))
        return 0;
    for (uint32_t i = 0; i < machine->system.gpu_count; i++)
        if (i != index && is_linked(&machine->gpu[i]) && machine->gpu[i].nvlink_group == gpu->nvlink_group)
            linked |= 1u << i;
    return linked;
}

/* Without switches the links are shared out among the other GPUs in their order. NULL: this link leads nowhere. */
static const struct gpu *peer_at(const struct machine *machine, const struct gpu *gpu, uint32_t link)
{
    uint32_t linked = linked_gpus(machine, gpu_index(machine, gpu));
    uint32_t peers = (uint32_t)__builtin_popcount(linked);
    uint32_t rank = peers ? link / ((gpu->nvlink_state.count + peers - 1) / peers) : 0;
    for (uint32_t i = 0; i < machine->system.gpu_count; i++)
        if (linked & 1u << i && rank-- == 0)
            return &machine->gpu[i];
    return NULL;
}

/* Switch ports: six switches take the links in turn. */
static void describe_switch(uint32_t link, nvmlPciInfo_t *pci)
{
    enum { SWITCHES = 6, FIRST_BUS = 0xe0, DEVICE_ID = 0x22A310DE };
    *pci = (nvmlPciInfo_t){.bus = FIRST_BUS + link % SWITCHES, .pci_device_id = DEVICE_ID};
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    BEGIN_LINK(device, link, false);
    REQUIRE(pci, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->nvlink_state.item[link], NVML_ERROR_NOT_SUPPORTED);
    const struct gpu *peer = gpu->nvlink_remote == REMOTE_GPU ? peer_at(call.machine, gpu, link) : NULL;
    REQUIRE(peer || gpu->nvlink_remote == REMOTE_SWITCH, NVML_ERROR_NOT_SUPPORTED);
    if (peer)
        *pci = (nvmlPciInfo_t){.domain = peer->pci_domain, .bus = peer->pci_bus, .device = peer->pci_device,
                               .pci_device_id = peer->pci_device_id};
    else
        describe_switch(link, pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff, pci->device & 0xff);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}

static void cluster_uuid(const struct gpu *gpu, unsigned char out[16])
{
    unsigned int byte;
    size_t count = 0;
    memset(out, 0, 16);
    for (const char *text = gpu->fabric_cluster_uuid; *text && count < 16; text += *text == '-' ? 1 : 2)
        if (*text != '-' && sscanf(text, "%2x", &byte) == 1)
            out[count++] = (unsigned char)byte;
}

/* All zero until the fabric is ready. */
#define FILL_FABRIC(info, gpu)                                       \
    (info)->status = (nvmlReturn_t)(gpu)->fabric_status;             \
    (info)->clique_id = (gpu)->fabric_clique;                        \
    (info)->state = (gpu)->fabric_state;                             \
    if ((gpu)->fabric_state == COMPLETED)                            \
        cluster_uuid(gpu, (info)->cluster_uuid);                     \
    else                                                             \
        memset((info)->cluster_uuid, 0, sizeof (info)->cluster_uuid)

enum { COMPLETED = 3 };

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    BEGIN_GPU(device);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->architecture >= ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);
    FILL_FABRIC(info, gpu);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, void *info)
{
    nvmlGpuFabricInfo_v2_t *v2 = info;
    nvmlGpuFabricInfo_v3_t *v3 = info;
    BEGIN_GPU(device);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->architecture >= ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);
    if (v2->version == VERSION(nvmlGpuFabricInfo_v2_t, 2)) {
        FILL_FABRIC(v2, gpu);
        v2->health_mask = gpu->fabric_health_mask;
        END(NVML_SUCCESS);
    }
    REQUIRE(v3->version == VERSION(nvmlGpuFabricInfo_v3_t, 3), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    FILL_FABRIC(v3, gpu);
    v3->health_mask = gpu->fabric_health_mask;
    v3->health_summary = (unsigned char)gpu->fabric_health_summary;
    END(NVML_SUCCESS);
}
