/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* What can be set on a GPU: persistence, compute mode, ECC, power limit, clock locks, accounting. */
#include "simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_daemon(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 10};
    const char *path = getenv("NVML_SIM_PERSISTENCED");
    if (!path || !*path)
        path = "/var/run/nvidia-persistenced/socket";
    int link = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (link < 0)
        return -1;
    setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect(link, (struct sockaddr *)&address, sizeof address) == 0)
        return link;
    close(link);
    return -1;
}

/* `set <pci bus id> <0|1>`, answered `ok` or `error <code>`. */
static nvmlReturn_t ask_daemon(int link, const char *bus_id, unsigned int mode)
{
    char text[128];
    size_t used = 0;
    int length = snprintf(text, sizeof text, "set %s %u\n", bus_id, mode);
    if (send(link, text, (size_t)length, MSG_NOSIGNAL) != length)
        return NVML_ERROR_UNKNOWN;
    while (used < sizeof text - 1) {
        ssize_t got = recv(link, text + used, sizeof text - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
        if (text[used - 1] == '\n')
            break;
    }
    text[used] = '\0';
    unsigned int code;
    if (strcmp(text, "ok\n") == 0)
        return NVML_SUCCESS;
    return sscanf(text, "error %u", &code) == 1 ? (nvmlReturn_t)code : NVML_ERROR_UNKNOWN;
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned int mode)
{
    char bus_id[32];
    BEGIN_ROOT(device);
    REQUIRE(mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->virtualization_mode != VGPU_HOST, NVML_ERROR_NOT_SUPPORTED);
    pci_bus_id(gpu, bus_id);
    int link = connect_daemon();
    if (link < 0) {
        change_gpu(call.state, gpu);
        gpu->persistence = mode;
        END(NVML_SUCCESS);
    }
    call_pause(&call); /* the daemon changes the same state */
    nvmlReturn_t answer = ask_daemon(link, bus_id, mode);
    close(link);
    begun = call_resume(&call);
    if (begun == NVML_SUCCESS && answer == NVML_SUCCESS && mode == 0)
        call.machine->gpu[call.gpu].persistence = 0;
    END(begun == NVML_SUCCESS ? answer : begun);
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN_GPU(device);
    END(put_u32(mode, gpu->persistence || daemon_holds(gpu)));
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN_GPU(device);
    END(put_u32(mode, gpu->compute_mode));
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode)
{
    enum { EXCLUSIVE_THREAD = 1, EXCLUSIVE_PROCESS = 3 };
    BEGIN_ROOT(device);
    REQUIRE(mode <= EXCLUSIVE_PROCESS, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(mode != EXCLUSIVE_THREAD, NVML_ERROR_NOT_SUPPORTED);
    change_gpu(call.state, gpu);
    gpu->compute_mode = mode;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    BEGIN_GPU(device);
    REQUIRE(current && pending, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->ecc != NONE, NVML_ERROR_NOT_SUPPORTED);
    *current = gpu->ecc;
    *pending = gpu->ecc_pending;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN_GPU(device);
    END(put_u32(mode, gpu->ecc_default));
}

EXPORT nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, unsigned int mode)
{
    BEGIN_ROOT(device);
    REQUIRE(mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->ecc != NONE, NVML_ERROR_NOT_SUPPORTED);
    change_gpu(call.state, gpu);
    gpu->ecc_pending = mode;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN_GPU(device);
    REQUIRE(mode, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(mode, gpu->power_limit == NONE ? NONE : 1));
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    BEGIN_GPU(device);
    END(put_u32(milliwatts, gpu->power_limit));
}

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    BEGIN_GPU(device);
    END(put_u32(milliwatts, gpu->power_limit));
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
    BEGIN_GPU(device);
    END(put_u32(milliwatts, gpu->power_limit_default));
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *smallest,
                                                                 unsigned int *largest)
{
    BEGIN_GPU(device);
    REQUIRE(smallest && largest, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->power_limit != NONE, NVML_ERROR_NOT_SUPPORTED);
    *smallest = gpu->power_limit_min;
    *largest = gpu->power_limit_max;
    END(NVML_SUCCESS);
}

static nvmlReturn_t set_power_limit(struct call *call, struct gpu *gpu, unsigned int milliwatts)
{
    if (gpu->power_limit == NONE)
        return NVML_ERROR_NOT_SUPPORTED;
    if (milliwatts < gpu->power_limit_min || milliwatts > gpu->power_limit_max)
        return NVML_ERROR_INVALID_ARGUMENT;
    change_gpu(call->state, gpu);
    gpu->power_limit = milliwatts;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int milliwatts)
{
    BEGIN_ROOT(device);
    END(set_power_limit(&call, gpu, milliwatts));
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, nvmlPowerValue_v2_t *power)
{
    enum { SCOPE_GPU = 0 };
    BEGIN_ROOT(device);
    REQUIRE(power, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(power->version == VERSION(nvmlPowerValue_v2_t, 2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(power->scope == SCOPE_GPU, NVML_ERROR_NOT_SUPPORTED);
    END(set_power_limit(&call, gpu, power->milliwatts));
}

/* Symbolic limits instead of MHz; they do not mix with numbers. */
enum { LIMIT_TDP = 0xffffff01u, LIMIT_UNLIMITED = 0xffffff02u };

static bool symbolic(unsigned int mhz)
{
    return mhz == LIMIT_TDP || mhz == LIMIT_UNLIMITED;
}

EXPORT nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int smallest, unsigned int largest)
{
    BEGIN_ROOT(device);
    REQUIRE(gpu->graphics_clock_max != NONE, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(symbolic(smallest) == symbolic(largest), NVML_ERROR_INVALID_ARGUMENT);
    if (symbolic(smallest)) {
        smallest = smallest == LIMIT_TDP ? gpu->graphics_clock_max : gpu->graphics_clock_min;
        largest = gpu->graphics_clock_max;
    }
    REQUIRE(smallest <= largest && largest <= gpu->graphics_clock_max && largest >= gpu->graphics_clock_min,
            NVML_ERROR_INVALID_ARGUMENT);
    change_gpu(call.state, gpu);
    bool unlocked = smallest == gpu->graphics_clock_min && largest == gpu->graphics_clock_max;
    gpu->locked_graphics_min = unlocked ? NONE : smallest;
    gpu->locked_graphics_max = unlocked ? NONE : largest;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device)
{
    BEGIN_ROOT(device);
    REQUIRE(gpu->graphics_clock_max != NONE, NVML_ERROR_NOT_SUPPORTED);
    change_gpu(call.state, gpu);
    gpu->locked_graphics_min = gpu->locked_graphics_max = NONE;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned int smallest, unsigned int largest)
{
    BEGIN_ROOT(device);
    REQUIRE(gpu->memory_clocks.count, NVML_ERROR_NOT_SUPPORTED);
    unsigned int highest = gpu->memory_clocks.item[0];
    unsigned int lowest = gpu->memory_clocks.item[gpu->memory_clocks.count - 1];
    REQUIRE(smallest <= largest && largest >= lowest && largest <= highest, NVML_ERROR_INVALID_ARGUMENT);
    change_gpu(call.state, gpu);
    gpu->locked_memory_min = smallest;
    gpu->locked_memory_max = largest;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device)
{
    BEGIN_ROOT(device);
    REQUIRE(gpu->memory_clocks.count, NVML_ERROR_NOT_SUPPORTED);
    change_gpu(call.state, gpu);
    gpu->locked_memory_min = gpu->locked_memory_max = NONE;
    END(NVML_SUCCESS);
}

static uint32_t clip(uint32_t mhz, uint32_t smallest, uint32_t largest)
{
    if (largest != NONE && mhz > largest)
        mhz = largest;
    return smallest != NONE && mhz < smallest ? smallest : mhz;
}

static uint32_t max_clock(const struct gpu *gpu, unsigned int clock)
{
    if (clock == MEMORY_CLOCK)
        return gpu->memory_clocks.count ? gpu->memory_clocks.item[0] : NONE;
    return clock == VIDEO_CLOCK ? gpu->video_clock_max : gpu->graphics_clock_max;
}

/* An idle GPU runs at its lowest clock, a working one at its highest, both within the lock; the memory of those that
 * only compute does not slow down in P0 (recorded on an H200). */
uint32_t current_clock(const struct machine *machine, const struct gpu *gpu, unsigned int clock)
{
    bool works = gpu_has_work(machine, gpu_index(machine, gpu));
    uint32_t highest = max_clock(gpu, clock);
    if (highest == NONE)
        return NONE;
    if (clock == MEMORY_CLOCK) {
        uint32_t lowest = gpu->memory_clocks.item[gpu->memory_clocks.count - 1];
        bool fast = works || (gpu->architecture >= ARCH_HOPPER && !has_encoder(gpu) && gpu->performance_state == 0);
        return clip(fast ? highest : lowest, gpu->locked_memory_min, gpu->locked_memory_max);
    }
    uint32_t graphics = clip(works ? gpu->graphics_clock_max : gpu->graphics_clock_min, gpu->locked_graphics_min,
                             gpu->locked_graphics_max);
    if (clock == VIDEO_CLOCK && gpu->video_clock_min != NONE && !works)
        return gpu->video_clock_min;
    return clock == VIDEO_CLOCK ? (uint32_t)((uint64_t)graphics * highest / gpu->graphics_clock_max) : graphics;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int clock, unsigned int *mhz)
{
    BEGIN_ANY_DEVICE(device);
    REQUIRE(clock < CLOCKS, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(mhz, current_clock(call.machine, gpu, clock)));
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int clock, unsigned int *mhz)
{
    BEGIN_ANY_DEVICE(device);
    REQUIRE(clock < CLOCKS, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(mhz, max_clock(gpu, clock)));
}

static uint32_t boost_clock(const struct gpu *gpu, unsigned int clock)
{
    return clock == GRAPHICS_CLOCK || clock == SM_CLOCK ? gpu->graphics_clock_max : NONE;
}

/* Application clocks, as a driver of branch 580 has them on an H200, which nobody set. What others answer was not
 * recorded: NVIDIA says that recent drivers refuse them. */
static uint32_t application_clock(const struct machine *machine, const struct gpu *gpu, unsigned int clock)
{
    if (gpu->architecture < ARCH_HOPPER || driver_branch(machine) > RECORDED_BRANCH || clock == VIDEO_CLOCK)
        return NONE;
    return max_clock(gpu, clock);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, unsigned int clock, unsigned int *mhz)
{
    BEGIN_GPU(device);
    REQUIRE(clock < CLOCKS, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(mhz, boost_clock(gpu, clock)));
}

EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int clock, unsigned int id, unsigned int *mhz)
{
    enum { CURRENT, APPLICATION, APPLICATION_DEFAULT, CUSTOMER_BOOST_MAX, IDS };
    BEGIN_GPU(device);
    REQUIRE(clock < CLOCKS && id < IDS, NVML_ERROR_INVALID_ARGUMENT);
    if (id == CURRENT)
        END(put_u32(mhz, current_clock(call.machine, gpu, clock)));
    END(put_u32(mhz, id == CUSTOMER_BOOST_MAX ? boost_clock(gpu, clock) : application_clock(call.machine, gpu, clock)));
}

EXPORT nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned int clock, unsigned int *mhz)
{
    BEGIN_GPU(device);
    REQUIRE(clock < CLOCKS, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(mhz, application_clock(call.machine, gpu, clock)));
}

EXPORT nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, unsigned int clock, unsigned int *mhz)
{
    BEGIN_GPU(device);
    REQUIRE(clock < CLOCKS, NVML_ERROR_INVALID_ARGUMENT);
    END(put_u32(mhz, application_clock(call.machine, gpu, clock)));
}

/* Whether they can be set was not recorded. */
EXPORT nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned int memory, unsigned int graphics)
{
    BEGIN_ROOT(device);
    (void)gpu, (void)memory, (void)graphics;
    END(NVML_ERROR_NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device)
{
    BEGIN_ROOT(device);
    (void)gpu;
    END(NVML_ERROR_NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *mhz)
{
    BEGIN_GPU(device);
    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->memory_clocks.count, NVML_ERROR_NOT_SUPPORTED);
    bool fits = *count >= gpu->memory_clocks.count;
    *count = gpu->memory_clocks.count;
    REQUIRE(fits, NVML_ERROR_INSUFFICIENT_SIZE);
    REQUIRE(mhz, NVML_ERROR_INVALID_ARGUMENT);
    memcpy(mhz, gpu->memory_clocks.item, *count * sizeof *mhz);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory, unsigned int *count,
                                                         unsigned int *mhz)
{
    BEGIN_GPU(device);
    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->memory_clocks.count && gpu->graphics_clock_max != NONE, NVML_ERROR_NOT_SUPPORTED);
    bool known = false;
    for (uint32_t i = 0; i < gpu->memory_clocks.count; i++)
        known = known || gpu->memory_clocks.item[i] == memory;
    REQUIRE(known, NVML_ERROR_NOT_FOUND);
    uint32_t clocks = (gpu->graphics_clock_max - gpu->graphics_clock_min) / gpu->graphics_clock_step + 1;
    bool fits = *count >= clocks;
    *count = clocks;
    REQUIRE(fits, NVML_ERROR_INSUFFICIENT_SIZE);
    REQUIRE(mhz, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t i = 0; i < clocks; i++)
        mhz[i] = gpu->graphics_clock_max - i * gpu->graphics_clock_step;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN_GPU(device);
    END(put_u32(mode, gpu->accounting));
}

EXPORT nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, unsigned int mode)
{
    BEGIN_ROOT(device);
    REQUIRE(mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig != 1, NVML_ERROR_NOT_SUPPORTED);
    change_gpu(call.state, gpu);
    gpu->accounting = mode;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *size)
{
    BEGIN_GPU(device);
    (void)gpu;
    END(put_u32(size, 4000));
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    (void)pids;
    BEGIN_GPU(device);
    (void)gpu;
    END(put_u32(count, 0));
}

EXPORT nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t device)
{
    BEGIN_ROOT(device);
    (void)gpu;
    END(NVML_SUCCESS);
}
