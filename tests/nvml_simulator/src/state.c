/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* The state file, its lock, and the two ends of every NVML call: faults, the log, who is initialised. */
#include "simulator.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* This process: mapped from the first nvmlInit to the last nvmlShutdown. */
static struct {
    pthread_mutex_t mutex;
    int file;
    struct state *state;
    unsigned int users;
    uint32_t epoch;
    pid_t pid;
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER, .file = -1};

const char *state_path(void)
{
    const char *path = getenv("NVML_SIM_STATE");
    return path && *path ? path : "/var/lib/nvml_simulator/state";
}

bool is_root(void)
{
    const char *user = getenv("NVML_SIM_EUID");
    return user && *user ? strcmp(user, "0") == 0 : geteuid() == 0;
}

/* Another description of an open file, and the only one: a lock belongs to a description. */
static int reopen(int file)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int own = open(path, O_RDWR | O_CLOEXEC);
    int error = errno;
    close(file);
    errno = error;
    return own;
}

/* The file's descriptor, or a negative errno. EPROTO: the file is not a state of this build. The mapping, which forked
 * children share, keeps its own description, so that it keeps no lock. */
int state_map(const char *path, struct state **state)
{
    struct stat found;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return -errno;
    if (fstat(file, &found) != 0 || found.st_size != (off_t)sizeof(struct state)) {
        close(file);
        return -EPROTO;
    }
    void *memory = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        int error = errno;
        close(file);
        return -error;
    }
    *state = memory;
    if (memcmp((*state)->magic, MAGIC, sizeof (*state)->magic) != 0 || (*state)->layout != text_layout()) {
        state_unmap(file, *state);
        return -EPROTO;
    }
    file = reopen(file);
    if (file >= 0)
        return file;
    int error = errno;
    munmap(*state, sizeof **state);
    return -error;
}

void state_unmap(int file, struct state *state)
{
    munmap(state, sizeof *state);
    close(file);
}

/* False, without the lock: the file has been cut, removed or replaced by another. */
bool state_lock(int file, struct state *state)
{
    struct stat found;
    while (flock(file, LOCK_EX) != 0 && errno == EINTR)
        continue;
    if (fstat(file, &found) != 0 || found.st_size != (off_t)sizeof(struct state) || found.st_nlink == 0) {
        flock(file, LOCK_UN);
        return false;
    }
    const uint64_t whole = sizeof state->undo;
    if (state->undo_length && state->undo_length <= whole && state->undo_offset <= whole - state->undo_length) {
        memcpy((char *)&state->machine + state->undo_offset, state->undo, state->undo_length);
        atomic_signal_fence(memory_order_seq_cst);
        state->undo_length = 0;
    }
    return true;
}

void state_unlock(int file, struct state *state)
{
    atomic_signal_fence(memory_order_seq_cst);
    state->undo_length = 0;
    while (flock(file, LOCK_UN) != 0 && errno == EINTR)
        continue;
}

/* To be called before a change: a killed writer's half change is taken back by the next one who locks. */
static void change_begin(struct state *state, size_t offset, size_t length)
{
    if (state->undo_length)
        return; /* the first one of a call covers what the call changes */
    memcpy(state->undo, (char *)&state->machine + offset, length);
    state->undo_offset = offset;
    atomic_signal_fence(memory_order_seq_cst);
    state->undo_length = length;
    atomic_signal_fence(memory_order_seq_cst);
}

void change_all(struct state *state)
{
    change_begin(state, 0, sizeof state->machine);
}

void change_gpu(struct state *state, struct gpu *gpu)
{
    change_begin(state, (size_t)((char *)gpu - (char *)&state->machine), sizeof *gpu);
}

uint32_t symbol_hash(const char *symbol)
{
    uint32_t hash = 2166136261u;
    for (; *symbol; symbol++)
        hash = (hash ^ (unsigned char)*symbol) * 16777619u;
    return hash;
}

static struct fault *fault_for(struct machine *machine, const char *symbol)
{
    uint32_t hash = symbol_hash(symbol);
    for (struct fault *fault = machine->fault; fault < machine->fault + MAX_FAULTS && fault->symbol[0]; fault++)
        if (fault->hash == hash && strcmp(fault->symbol, symbol) == 0)
            return fault;
    return NULL;
}

static void fault_drop(struct machine *machine, struct fault *fault)
{
    struct fault *last = fault;
    while (last + 1 < machine->fault + MAX_FAULTS && last[1].symbol[0])
        last++;
    *fault = *last;
    memset(last, 0, sizeof *last);
}

/* A hung driver: no signal but KILL gets through, until the fault is healed or the state file is removed. */
static nvmlReturn_t hang(struct call *call, uint32_t milliseconds)
{
    const struct timespec moment = {.tv_nsec = 20 * 1000 * 1000};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bool hanging = true;
    for (uint64_t waited = 0; hanging && (milliseconds == 0 || waited < milliseconds); waited += 20) {
        call_pause(call);
        nanosleep(&moment, NULL);
        if (call_resume(call) != NVML_SUCCESS)
            break;
        struct fault *fault = fault_for(call->machine, call->symbol);
        hanging = fault && fault->kind == HANG;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return call->state ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

/* One call less that passes, or one less that does not; the fault goes with the last of these. */
static nvmlReturn_t fail(struct call *call, struct fault *fault)
{
    nvmlReturn_t code = (nvmlReturn_t)fault->code;
    if (fault->skip > 0) {
        fault->skip--;
        return NVML_SUCCESS;
    }
    if (fault->remaining > 1) {
        fault->remaining--;
    } else if (fault->remaining == 1) {
        change_all(call->state);
        fault_drop(call->machine, fault);
    }
    return code;
}

/* Kills now, or says by call->kills that it is due after the call. */
static void meet_kill(struct call *call, struct fault *fault)
{
    if (fault->skip > 0) {
        fault->skip--;
        return;
    }
    bool late = fault->late;
    call->kills = fault->group ? CALLERS_GROUP : CALLER;
    change_all(call->state);
    fault_drop(call->machine, fault);
    call->state->undo_length = 0; /* else who locks next would bring the fault back */
    if (!late)
        call_kill(call);
}

/* The process, or its group, ends here: not even a handler of its own runs any more. */
void call_kill(const struct call *call)
{
    if (call->kills != NOBODY)
        kill(call->kills == CALLERS_GROUP ? 0 : getpid(), SIGKILL);
}

static nvmlReturn_t meet_named_fault(struct call *call)
{
    struct fault *fault = fault_for(call->machine, call->symbol);
    if (!fault)
        return NVML_SUCCESS;
    return fault->kind == HANG ? hang(call, fault->milliseconds) : fail(call, fault);
}

/* What a call that changes something meets: every such call counts, also one that fails for another reason. */
nvmlReturn_t change_meets_fault(struct call *call)
{
    struct fault *killer = fault_for(call->machine, KILL_AT_CHANGE);
    if (killer)
        meet_kill(call, killer);
    struct fault *any = fault_for(call->machine, ANY_CHANGE);
    nvmlReturn_t result = any ? fail(call, any) : NVML_SUCCESS;
    return result == NVML_SUCCESS ? meet_named_fault(call) : result;
}

static nvmlReturn_t meet_fault(struct call *call)
{
    return call->change ? change_meets_fault(call) : meet_named_fault(call);
}

static struct client *register_self(void)
{
    struct client wanted = {
        .pid = (uint32_t)self.pid, .start_time = process_start(self.pid), .gpu = NONE, .gpu_instance = NONE,
        .compute_instance = NONE, .kind = MONITOR, .nvml = 1};
    process_name(self.pid, wanted.name, sizeof wanted.name);
    return client_add(&self.state->machine, &wanted);
}

/* A forked child would share its parent's lock, and keep it when the parent is killed. */
static void after_fork(void)
{
    pthread_mutex_init(&self.mutex, NULL);
    if (self.state && (self.file = reopen(self.file)) < 0)
        self.state = NULL;
}

static void detach(void)
{
    struct state *state = self.state;
    self.state = NULL; /* first: a fork at this moment must not see it any more */
    self.users = 0;
    devices_close();
    state_unmap(self.file, state);
}

static nvmlReturn_t lock_self(void)
{
    pthread_mutex_lock(&self.mutex);
    if (self.state && state_lock(self.file, self.state)) {
        pid_t pid = own_pid();
        if (self.pid != pid) {
            self.pid = pid;
            register_self();
        }
        return NVML_SUCCESS;
    }
    if (self.state)
        detach();
    pthread_mutex_unlock(&self.mutex);
    return NVML_ERROR_UNINITIALIZED;
}

/* NVML_SUCCESS with the lock held; else the lock is held only when call->state is set. */
nvmlReturn_t call_begin(struct call *call, const char *symbol, bool change)
{
    *call = (struct call){.symbol = symbol, .gpu = NONE, .change = change};
    nvmlReturn_t result = call_resume(call);
    if (result != NVML_SUCCESS)
        return result;
    result = meet_fault(call);
    if (result != NVML_SUCCESS)
        return result;
    if (call->machine->system.epoch != self.epoch || !call->machine->system.driver_loaded)
        return NVML_ERROR_UNINITIALIZED;
    return NVML_SUCCESS;
}

void call_pause(struct call *call)
{
    call->state = NULL;
    call->machine = NULL;
    state_unlock(self.file, self.state);
    pthread_mutex_unlock(&self.mutex);
}

nvmlReturn_t call_resume(struct call *call)
{
    nvmlReturn_t result = lock_self();
    if (result == NVML_SUCCESS) {
        call->state = self.state;
        call->machine = &self.state->machine;
    }
    return result;
}

void call_log(const struct call *call, pid_t pid, nvmlReturn_t result)
{
    struct state *state = call->state;
    struct log_entry *log = call->change ? state->change_log : state->read_log;
    uint64_t *count = call->change ? &state->changes : &state->reads;
    struct log_entry *entry = &log[*count % LOG_SIZE];
    entry->sequence = 0;
    entry->pid = (uint32_t)pid;
    entry->gpu = call->gpu;
    entry->result = (uint32_t)result;
    strncpy(entry->symbol, call->symbol, sizeof entry->symbol - 1);
    atomic_signal_fence(memory_order_seq_cst);
    entry->sequence = ++state->sequence;
    ++*count;
}

nvmlReturn_t call_end(struct call *call, nvmlReturn_t result)
{
    if (!call->state)
        return result;
    call_log(call, self.pid, result);
    call_pause(call);
    call_kill(call);
    return result;
}

static nvmlReturn_t attach(void)
{
    static bool watched;
    if (!watched)
        watched = pthread_atfork(NULL, NULL, after_fork) == 0;
    struct state *state;
    int file = state_map(state_path(), &state);
    if (file == -ENOENT || file == -ENOTDIR)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (file == -EACCES || file == -EPERM || file == -EROFS)
        return NVML_ERROR_NO_PERMISSION;
    if (file < 0)
        return NVML_ERROR_UNKNOWN;
    self.file = file;
    self.pid = own_pid();
    self.state = state;
    return NVML_SUCCESS;
}

/* Attached and locked. A state that was replaced since the process attached is found out by the lock. */
static nvmlReturn_t attach_and_lock(struct call *call)
{
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
    for (int attempt = 0; attempt < 2 && result == NVML_ERROR_UNINITIALIZED; attempt++) {
        pthread_mutex_lock(&self.mutex);
        result = self.state ? NVML_SUCCESS : attach();
        pthread_mutex_unlock(&self.mutex);
        if (result == NVML_SUCCESS)
            result = call_resume(call);
    }
    return result;
}

static nvmlReturn_t initialise(struct call *call)
{
    char field[64];
    if (!machine_is_sound(call->machine, field, sizeof field))
        return NVML_ERROR_UNKNOWN;
    nvmlReturn_t result = meet_fault(call);
    if (result != NVML_SUCCESS)
        return result;
    struct system *system = &call->machine->system;
    if (!system->driver_loaded)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (system->version_mismatch)
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    if (self.users == 0 || self.epoch != system->epoch) {
        clients_sweep(call->state);
        if (!client_of_process(call->machine, self.pid) && !register_self())
            return NVML_ERROR_MEMORY;
        self.users = 0;
        self.epoch = system->epoch;
        devices_open(call->machine);
    }
    self.users++;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    struct call call = {.symbol = "nvmlInitWithFlags", .gpu = NONE};
    nvmlReturn_t result = attach_and_lock(&call);
    if (result != NVML_SUCCESS)
        return result;
    result = call_end(&call, initialise(&call));
    pthread_mutex_lock(&self.mutex);
    if (self.state && self.users == 0)
        detach();
    pthread_mutex_unlock(&self.mutex);
    return result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    struct call call = {.symbol = "nvmlShutdown", .gpu = NONE};
    nvmlReturn_t result = call_resume(&call);
    if (result != NVML_SUCCESS)
        return result;
    result = meet_fault(&call);
    if (result != NVML_SUCCESS)
        return call_end(&call, result);
    bool last = --self.users == 0;
    if (last) {
        struct client *client = client_of_process(call.machine, self.pid);
        if (client)
            client_remove(call.state, client);
        clients_sweep(call.state);
    }
    result = call_end(&call, NVML_SUCCESS);
    pthread_mutex_lock(&self.mutex);
    if (last && self.state && self.users == 0)
        detach();
    pthread_mutex_unlock(&self.mutex);
    return result;
}

nvmlReturn_t put_text(char *out, unsigned int length, const char *text)
{
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (length <= strlen(text))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t put_u32(unsigned int *out, uint32_t value)
{
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (value == NONE)
        return NVML_ERROR_NOT_SUPPORTED;
    *out = value;
    return NVML_SUCCESS;
}
