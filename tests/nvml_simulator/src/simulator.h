/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

#ifndef SIMULATOR_H
#define SIMULATOR_H

#define _GNU_SOURCE

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi.h"
#include "state.def"

#define NONE UINT32_MAX
#define MAX_GPUS 16
#define MAX_PROFILES 20
#define MAX_INSTANCES 16
#define MAX_COMPUTE 8
#define MAX_COMPUTE_PROFILES 24
#define MAX_CLIENTS 256
#define MAX_FAULTS 192
#define LOG_SIZE 4096
#define MAX_CPUS 4096
#define MAGIC "nvml-simulator 1"

#define AS_TEXT(name, size) char name[size];
#define AS_U32(name) uint32_t name;
#define AS_U64(name) uint64_t name;
#define AS_LIST(name, capacity)        \
    struct {                           \
        uint32_t count;                \
        uint32_t item[capacity];       \
    } name;

struct system { SYSTEM_FIELDS(AS_TEXT, AS_U32, AS_U64, AS_LIST) };
struct profile { PROFILE_FIELDS(AS_TEXT, AS_U32, AS_U64, AS_LIST) };
struct compute { COMPUTE_FIELDS(AS_TEXT, AS_U32, AS_U64, AS_LIST) };
struct instance {
    INSTANCE_FIELDS(AS_TEXT, AS_U32, AS_U64, AS_LIST)
    struct compute compute[MAX_COMPUTE];
};
struct gpu {
    GPU_FIELDS(AS_TEXT, AS_U32, AS_U64, AS_LIST)
    struct profile profile[MAX_PROFILES];
    struct instance instance[MAX_INSTANCES];
};
struct compute_profile { COMPUTE_PROFILE_FIELDS(AS_TEXT, AS_U32, AS_U64, AS_LIST) };
struct client { CLIENT_FIELDS(AS_TEXT, AS_U32, AS_U64, AS_LIST) };
struct fault { FAULT_FIELDS(AS_TEXT, AS_U32, AS_U64, AS_LIST) };

struct machine {
    struct system system;
    struct gpu gpu[MAX_GPUS];
    struct compute_profile compute_profile[MAX_COMPUTE_PROFILES];
    struct client client[MAX_CLIENTS];
    struct fault fault[MAX_FAULTS];
};

struct log_entry {
    uint64_t sequence; /* from 1; 0: not written yet */
    uint32_t pid, gpu, result;
    char symbol[76];
};

/* The file. `undo` holds what a change overwrote until the change is complete: who finds it filled when taking the
 * lock (the writer was killed) puts it back. */
struct state {
    char magic[16];
    uint64_t layout; /* of the build that made it: another one may not touch it */
    uint64_t sequence;
    uint64_t reads, changes;
    struct log_entry read_log[LOG_SIZE], change_log[LOG_SIZE];
    uint64_t undo_length, undo_offset;
    char undo[sizeof(struct machine)];
    struct machine machine;
};

enum client_kind { MONITOR, COMPUTE, GRAPHICS, MPS };
enum fault_kind { FAIL, HANG, HIDDEN, KILL };
enum { ARCH_AMPERE = 7, ARCH_HOPPER = 9 };
enum { RECORDED_BRANCH = 580 }; /* of the newest driver that was recorded on a GPU, in recorded/ */
enum nvlink_remote { REMOTE_GPU = 0, REMOTE_SWITCH = 2 };

/* Faults that meet every call which changes something, and the name under which a reset is met and logged. */
#define ANY_CHANGE "any-change"
#define KILL_AT_CHANGE "kill-at-change"
#define GPU_RESET "gpu-reset"
enum virtualization_mode { PASSTHROUGH = 1, VGPU_GUEST = 2, VGPU_HOST = 3 };
enum { ADDRESSING_ATS = 2 };

/* state.c: the file, its lock, and the two ends of every NVML call */
const char *state_path(void);
int state_map(const char *path, struct state **state);
void state_unmap(int file, struct state *state);
bool state_lock(int file, struct state *state);
void state_unlock(int file, struct state *state);
void change_all(struct state *state);
void change_gpu(struct state *state, struct gpu *gpu);
uint32_t symbol_hash(const char *symbol);

struct call {
    struct state *state;
    struct machine *machine;
    const char *symbol;
    uint32_t gpu;
    bool change;
    enum { NOBODY, CALLER, CALLERS_GROUP } kills; /* who is killed after the call */
};

nvmlReturn_t call_begin(struct call *call, const char *symbol, bool change);
nvmlReturn_t call_end(struct call *call, nvmlReturn_t result);
void call_pause(struct call *call);
nvmlReturn_t call_resume(struct call *call);
nvmlReturn_t change_meets_fault(struct call *call);
void call_log(const struct call *call, pid_t pid, nvmlReturn_t result);
void call_kill(const struct call *call);
bool is_root(void);

/* handles.c */
struct target {
    struct gpu *gpu;
    struct instance *instance; /* of a GPU instance, a compute instance or a MIG device */
    struct compute *compute;
};

enum handle_kind { DEVICE = 1, GPU_INSTANCE, COMPUTE_INSTANCE, MIG_DEVICE };

uintptr_t handle_of(struct machine *machine, enum handle_kind kind, const struct target *target);
nvmlReturn_t resolve(struct call *call, uintptr_t handle, enum handle_kind kind, struct target *target);
nvmlReturn_t resolve_device(struct call *call, uintptr_t handle, struct target *target);
uint32_t gpu_index(const struct machine *machine, const struct gpu *gpu);
uint32_t instance_id(const struct target *target);
uint32_t compute_id(const struct target *target);

/* Every exported function is BEGIN..., checks, END(result): the lock is held between the two. */
#define BEGIN(change)                                                    \
    struct call call;                                                    \
    nvmlReturn_t begun = call_begin(&call, __func__, change);            \
    if (begun != NVML_SUCCESS)                                           \
        return call_end(&call, begun)
#define END(result) return call_end(&call, (result))
#define REQUIRE(condition, error)                                        \
    if (!(condition))                                                    \
        END(error)
#define BEGIN_TARGET(device, wanted, change)                             \
    BEGIN(change);                                                       \
    struct target target;                                                \
    begun = resolve(&call, device, wanted, &target);                     \
    REQUIRE(begun == NVML_SUCCESS, begun);                               \
    struct gpu *gpu = target.gpu
#define BEGIN_GPU(device) BEGIN_TARGET(device, DEVICE, false)
#define BEGIN_ROOT(device)                                               \
    BEGIN_TARGET(device, DEVICE, true);                                  \
    REQUIRE(is_root(), NVML_ERROR_NO_PERMISSION)
#define BEGIN_ANY_DEVICE(device)                                         \
    BEGIN(false);                                                        \
    struct target target;                                                \
    begun = resolve_device(&call, device, &target);                      \
    REQUIRE(begun == NVML_SUCCESS, begun);                               \
    struct gpu *gpu = target.gpu

nvmlReturn_t nvmlInit_v2(void);

/* exports.c */
unsigned int driver_branch(const struct machine *machine);

/* readings.c */
unsigned long long now_usec(void);
bool has_encoder(const struct gpu *gpu);

/* settings.c */
enum clock { GRAPHICS_CLOCK, SM_CLOCK, MEMORY_CLOCK, VIDEO_CLOCK, CLOCKS };
uint32_t current_clock(const struct machine *machine, const struct gpu *gpu, unsigned int clock);

nvmlReturn_t put_text(char *out, unsigned int length, const char *text);
nvmlReturn_t put_u32(unsigned int *out, uint32_t value);

/* text.c */
bool text_assign(struct machine *machine, char *line, char *error, size_t size);
size_t text_dump(const struct machine *machine, char *out, size_t size);
uint64_t text_layout(void);
bool text_is_whole(const struct machine *machine);

/* sound.c */
bool machine_is_sound(const struct machine *machine, char *field, size_t size);

/* clients.c */
pid_t own_pid(void);
uint64_t process_start(pid_t pid);
void process_name(pid_t pid, char *name, size_t size);
struct client *client_add(struct machine *machine, const struct client *wanted);
void client_remove(struct state *state, struct client *client);
void clients_sweep(struct state *state);
struct client *client_of_process(struct machine *machine, pid_t pid);
bool client_holds(const struct client *client, uint32_t gpu);
bool daemon_holds(const struct gpu *gpu);
bool gpu_has_other_clients(struct machine *machine, uint32_t gpu, pid_t except);
bool gpu_has_work(const struct machine *machine, uint32_t gpu);
void gpu_left(struct state *state, uint32_t gpu);
void daemon_left(struct state *state, uint32_t gpu);

/* devices.c */
void devices_open(const struct machine *machine);
void devices_close(void);

/* lifecycle.c */
void gpu_forget_settings(struct gpu *gpu);
void gpu_reset(struct gpu *gpu);
void driver_reload(struct state *state);
uint32_t reset_together(const struct machine *machine, uint32_t gpu);

/* compute_instance.c */
uint32_t compute_multiprocessors(const struct target *target, uint32_t slices);
const char *profile_name(const struct machine *machine, const struct target *target, char *name, size_t size);

/* link.c */
uint32_t linked_gpus(const struct machine *machine, uint32_t gpu);

/* device.c */
void pci_bus_id(const struct gpu *gpu, char id[32]);
void mig_uuid(const struct machine *machine, const struct target *target, char *uuid, size_t size);

#endif
