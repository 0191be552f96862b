/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* What the tool can do to a machine and NVML cannot: one exported function, words in, text out. */
#include "simulator.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The request's words, and the answer under construction. */
struct request {
    const char **words;
    int count;
    char *answer;
    size_t size, used;
};

static void say(struct request *request, const char *format, ...)
{
    va_list arguments;
    size_t room = request->used < request->size ? request->size - request->used : 0;
    va_start(arguments, format);
    int length = vsnprintf(request->answer + (room ? request->used : 0), room, format, arguments);
    va_end(arguments);
    request->used += (size_t)length;
}

static int refuse(struct request *request, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(request->answer, request->size, format, arguments);
    va_end(arguments);
    return 1;
}

static uint32_t number(const char *word)
{
    return (uint32_t)strtoul(word, NULL, 10);
}

static const char *const kind_names[] = {"monitor", "compute", "graphics", "mps"};
static const char *const fault_names[] = {"fail", "hang", "hide", "old", "kill"};
enum { NOBODYS_PID = 0 };

static bool holders(struct request *request, struct machine *machine, uint32_t gpu, const char *goal)
{
    bool held = false;
    for (const struct client *client = machine->client; client < machine->client + MAX_CLIENTS; client++)
        if (client_holds(client, gpu)) {
            say(request, held ? ", " : "Cannot %s: GPU %u is held by ", goal, gpu);
            say(request, "%s (pid %u, %s, client %u)", client->name, client->pid, kind_names[client->kind], client->id);
            held = true;
        }
    if (daemon_holds(&machine->gpu[gpu])) {
        say(request, held ? ", " : "Cannot %s: GPU %u is held by ", goal, gpu);
        say(request, "the persistence daemon (pid %u)", machine->gpu[gpu].daemon_pid);
        held = true;
    }
    return held;
}

static bool any_holders(struct request *request, struct machine *machine, const char *goal)
{
    for (uint32_t gpu = 0; gpu < machine->system.gpu_count; gpu++)
        if (holders(request, machine, gpu, goal))
            return true;
    return false;
}

/* The state, and the UUIDs of the MIG devices, which follow from it. */
static int dump(struct request *request, struct state *state)
{
    struct machine *machine = &state->machine;
    request->used = text_dump(machine, request->answer, request->size);
    for (uint32_t gpu = 0; gpu < machine->system.gpu_count; gpu++)
        for (uint32_t i = 0; i < MAX_INSTANCES; i++)
            for (uint32_t j = 0; j < MAX_COMPUTE; j++) {
                struct instance *instance = &machine->gpu[gpu].instance[i];
                struct target target = {&machine->gpu[gpu], instance, &instance->compute[j]};
                char uuid[96];
                if (!target.compute->birth)
                    continue;
                mig_uuid(machine, &target, uuid, sizeof uuid);
                say(request, "gpu.%u.instance.%u.compute.%u.uuid=\"%s\"\n", gpu, i, j, uuid);
            }
    return request->used < request->size ? 0 : refuse(request, "the description needs %zu bytes", request->used);
}

/* set PATH=VALUE...: all of them or none. */
static int set(struct request *request, struct state *state)
{
    struct machine *changed = malloc(sizeof *changed);
    if (!changed)
        return refuse(request, "out of memory");
    memcpy(changed, &state->machine, sizeof *changed);
    bool fine = true;
    for (int i = 1; i < request->count && fine; i++) {
        char line[1024];
        snprintf(line, sizeof line, "%s", request->words[i]);
        fine = text_assign(changed, line, request->answer, request->size);
    }
    char field[64];
    if (fine && !machine_is_sound(changed, field, sizeof field)) {
        refuse(request, "%s would not fit the rest of the machine", field);
        fine = false;
    }
    if (fine) {
        change_all(state);
        memcpy(&state->machine, changed, sizeof *changed);
    }
    free(changed);
    return !fine;
}

/* The GPUs that a request names, as bits. */
static uint32_t named_gpus(const struct request *request)
{
    uint32_t gpus = 0;
    for (int i = 1; i < request->count; i++)
        gpus |= 1u << number(request->words[i]);
    return gpus;
}

static void say_gpus(struct request *request, uint32_t gpus, const char *before, const char *between)
{
    for (uint32_t gpu = 0; gpu < MAX_GPUS; gpu++)
        if (gpus & 1u << gpu) {
            say(request, "%s%u", before, gpu);
            before = between;
        }
}

static void reset_all(struct state *state, uint32_t gpus)
{
    change_all(state);
    for (uint32_t gpu = 0; gpu < state->machine.system.gpu_count; gpu++)
        if (gpus & 1u << gpu)
            gpu_reset(&state->machine.gpu[gpu]);
}

static int reset(struct request *request, struct state *state)
{
    struct machine *machine = &state->machine;
    uint32_t gpus = named_gpus(request);
    for (uint32_t gpu = 0; gpu < machine->system.gpu_count; gpu++) {
        if (!(gpus & 1u << gpu))
            continue;
        if (holders(request, machine, gpu, "reset"))
            return 1;
        uint32_t missing = reset_together(machine, gpu) & ~gpus;
        if (missing) {
            say(request, "Cannot reset: GPU %u is linked by NVLink to ", gpu);
            say_gpus(request, missing, "GPU ", ", GPU ");
            say(request, "; reset them together");
            return 1;
        }
    }
    reset_all(state, gpus);
    return 0;
}

/* Why the driver does not reset this GPU together with the others of `gpus`. */
static nvmlReturn_t reset_refusal(struct machine *machine, uint32_t gpu, uint32_t gpus)
{
    if (!is_root())
        return NVML_ERROR_NO_PERMISSION;
    if (machine->gpu[gpu].lost)
        return NVML_ERROR_GPU_IS_LOST;
    if (machine->gpu[gpu].passthrough || reset_together(machine, gpu) & ~gpus)
        return NVML_ERROR_NOT_SUPPORTED;
    return gpu_has_other_clients(machine, gpu, NOBODYS_PID) ? NVML_ERROR_IN_USE : NVML_SUCCESS;
}

/* user-reset GPU...: a program's reset of all of them or none. It meets faults and is logged as an NVML call would be.
 * The answer has a line for each GPU: its result, and the GPUs that would have to be reset with it. */
static int user_reset(struct request *request, struct state *state)
{
    struct machine *machine = &state->machine;
    uint32_t gpus = named_gpus(request);
    struct call call = {.state = state, .machine = machine, .symbol = GPU_RESET, .change = true};
    nvmlReturn_t fault = change_meets_fault(&call);
    nvmlReturn_t results[MAX_GPUS];
    bool refused = false;
    for (uint32_t gpu = 0; gpu < machine->system.gpu_count; gpu++) {
        results[gpu] = fault != NVML_SUCCESS ? fault : reset_refusal(machine, gpu, gpus);
        refused = refused || (gpus & 1u << gpu && results[gpu] != NVML_SUCCESS);
    }
    if (!refused)
        reset_all(state, gpus);
    for (uint32_t gpu = 0; gpu < machine->system.gpu_count; gpu++) {
        if (!(gpus & 1u << gpu))
            continue;
        call.gpu = gpu;
        if (!refused || results[gpu] != NVML_SUCCESS)
            call_log(&call, own_pid(), results[gpu]);
        say(request, "%u %u", gpu, results[gpu]);
        say_gpus(request, reset_together(machine, gpu) & ~gpus, " ", " ");
        say(request, "\n");
    }
    if (call.kills != NOBODY) {
        state->undo_length = 0; /* the reset is done */
        call_kill(&call);
    }
    return 0;
}

static int unload(struct request *request, struct state *state)
{
    if (any_holders(request, &state->machine, "unload the driver"))
        return 1;
    change_all(state);
    if (state->machine.system.driver_loaded)
        driver_reload(state);
    state->machine.system.driver_loaded = 0;
    return 0;
}

static int load(struct request *request, struct state *state)
{
    (void)request;
    change_all(state);
    state->machine.system.driver_loaded = 1;
    state->machine.system.version_mismatch = 0; /* the driver that is loaded now came with the library */
    return 0;
}

static int reload(struct request *request, struct state *state)
{
    return unload(request, state) || load(request, state);
}

static int reboot(struct request *request, struct state *state)
{
    struct machine *machine = &state->machine;
    change_all(state);
    memset(machine->client, 0, sizeof machine->client);
    machine->system.fabric_manager_pid = 0;
    for (uint32_t gpu = 0; gpu < machine->system.gpu_count; gpu++) {
        machine->gpu[gpu].daemon_pid = 0;
        machine->gpu[gpu].lost = 0;
    }
    driver_reload(state);
    return load(request, state);
}

/* add-client GPU GI CI KIND MEMORY PID NAME; GI, CI and PID may be `none`. */
static int add_client(struct request *request, struct state *state)
{
    const char **words = request->words;
    struct machine *machine = &state->machine;
    struct client wanted = {.gpu = number(words[1]), .gpu_instance = NONE, .compute_instance = NONE,
                            .memory_mib = number(words[5])};
    struct gpu *gpu = &machine->gpu[wanted.gpu];
    if (strcmp(words[2], "none") != 0) {
        wanted.gpu_instance = number(words[2]);
        if (wanted.gpu_instance >= MAX_INSTANCES || !gpu->instance[wanted.gpu_instance].birth)
            return refuse(request, "GPU %u has no GPU instance %u", wanted.gpu, wanted.gpu_instance);
    }
    if (strcmp(words[3], "none") != 0) {
        wanted.compute_instance = number(words[3]);
        if (wanted.compute_instance >= MAX_COMPUTE ||
            !gpu->instance[wanted.gpu_instance].compute[wanted.compute_instance].birth)
            return refuse(request, "GPU instance %u of GPU %u has no compute instance %u", wanted.gpu_instance,
                          wanted.gpu, wanted.compute_instance);
    }
    while (wanted.kind < MPS && strcmp(kind_names[wanted.kind], words[4]) != 0)
        wanted.kind++;
    if (strcmp(words[6], "none") != 0) {
        wanted.pid = number(words[6]);
        wanted.start_time = process_start((pid_t)wanted.pid);
    } else {
        wanted.pid = 5000000 + machine->system.clients; /* above what the kernel ever gives */
    }
    snprintf(wanted.name, sizeof wanted.name, "%s", words[7]);
    struct client *client = client_add(machine, &wanted);
    if (!client)
        return refuse(request, "there are %u clients already", MAX_CLIENTS);
    say(request, "%u", client->id);
    return 0;
}

static int remove_client(struct request *request, struct state *state)
{
    struct machine *machine = &state->machine;
    bool all = strcmp(request->words[1], "all") == 0, found = all;
    for (struct client *client = machine->client; client < machine->client + MAX_CLIENTS; client++)
        if (client->id && (all ? !client->nvml : client->id == number(request->words[1]))) {
            client_remove(state, client);
            found = true;
        }
    return found ? 0 : refuse(request, "there is no client %s", request->words[1]);
}

/* fault KIND SYMBOL CODE SKIP COUNT MILLISECONDS LATE GROUP: replaces one that the symbol has. */
static int add_fault(struct request *request, struct state *state)
{
    const char **words = request->words;
    struct fault fault = {.hash = symbol_hash(words[2]), .code = number(words[3]), .skip = number(words[4]),
                          .remaining = number(words[5]), .milliseconds = number(words[6]), .late = number(words[7]),
                          .group = number(words[8])};
    while (fault.kind < KILL && strcmp(fault_names[fault.kind], words[1]) != 0)
        fault.kind++;
    snprintf(fault.symbol, sizeof fault.symbol, "%s", words[2]);
    for (struct fault *slot = state->machine.fault; slot < state->machine.fault + MAX_FAULTS; slot++)
        if (!slot->symbol[0] || strcmp(slot->symbol, fault.symbol) == 0) {
            change_all(state);
            *slot = fault;
            return 0;
        }
    return refuse(request, "there are %u faults already", MAX_FAULTS);
}

/* heal [SYMBOL] */
static int heal(struct request *request, struct state *state)
{
    struct fault *faults = state->machine.fault;
    const char *named = request->count > 1 ? request->words[1] : NULL;
    uint32_t kept = 0, count = 0;
    bool found = !named;
    for (; count < MAX_FAULTS && faults[count].symbol[0]; count++)
        found = found || strcmp(faults[count].symbol, named) == 0;
    if (!found)
        return refuse(request, "%s has no fault", named);
    change_all(state);
    for (uint32_t i = 0; i < count; i++)
        if (named && strcmp(faults[i].symbol, named) != 0)
            faults[kept++] = faults[i];
    memset(&faults[kept], 0, (count - kept) * sizeof faults[0]);
    return 0;
}

/* hold GPU PID and release GPU: what the persistence daemon does with its own bits. */
static int hold(struct request *request, struct state *state)
{
    struct gpu *gpu = &state->machine.gpu[number(request->words[1])];
    uint32_t pid = number(request->words[2]);
    uint64_t start = process_start((pid_t)pid);
    if (!start)
        return refuse(request, "there is no process %u", pid);
    change_gpu(state, gpu);
    gpu->daemon_pid = pid;
    gpu->daemon_start = start;
    return 0;
}

static int release(struct request *request, struct state *state)
{
    daemon_left(state, number(request->words[1]));
    return 0;
}

/* fabric-manager PID: this process is one, 0: it is none any more. */
static int fabric_manager(struct request *request, struct state *state)
{
    struct system *system = &state->machine.system;
    uint32_t pid = number(request->words[1]);
    uint64_t start = pid ? process_start((pid_t)pid) : 0;
    if (pid && !start)
        return refuse(request, "there is no process %u", pid);
    change_all(state);
    system->fabric_manager_pid = pid;
    system->fabric_manager_start = start;
    return 0;
}

static void say_log(struct request *request, const struct log_entry *log, uint64_t count, char mark)
{
    for (uint64_t i = count > LOG_SIZE ? count - LOG_SIZE : 0; i < count; i++) {
        const struct log_entry *entry = &log[i % LOG_SIZE];
        say(request, "%llu %u %d %u %c %s\n", (unsigned long long)entry->sequence, entry->pid,
            entry->gpu == NONE ? -1 : (int)entry->gpu, entry->result, mark, entry->symbol);
    }
}

static int show_log(struct request *request, struct state *state)
{
    if (request->count < 2)
        say_log(request, state->read_log, state->reads, 'r');
    say_log(request, state->change_log, state->changes, 'c');
    return 0;
}

static int clear_log(struct request *request, struct state *state)
{
    (void)request;
    state->reads = state->changes = 0;
    return 0;
}

static const struct {
    const char *name;
    int words;
    int (*run)(struct request *, struct state *);
} verbs[] = {
    {"dump", 1, dump}, {"set", 2, set}, {"reset", 2, reset}, {"user-reset", 2, user_reset},
    {"unload-driver", 1, unload}, {"load-driver", 1, load},
    {"reload-driver", 1, reload}, {"reboot", 1, reboot}, {"add-client", 8, add_client},
    {"remove-client", 2, remove_client}, {"fault", 9, add_fault}, {"heal", 1, heal}, {"hold", 3, hold},
    {"release", 2, release}, {"fabric-manager", 2, fabric_manager}, {"log", 1, show_log}, {"clear-log", 1, clear_log},
};

/* Does `words` to the state file at `path`. 0, or 1 with the reason in `answer`. */
EXPORT int nvml_sim_control(const char *path, int count, const char **words, char *answer, size_t size)
{
    struct request request = {words, count, answer, size, 0};
    struct state *state;
    answer[0] = '\0';
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].name, words[0]) != 0 || count < verbs[i].words)
            continue;
        int file = state_map(path, &state);
        if (file == -EPROTO)
            return refuse(&request, "%s is not a state of this build: create it again", path);
        if (file < 0)
            return refuse(&request, "cannot open %s: %s", path, strerror(-file));
        if (!state_lock(file, state)) {
            state_unmap(file, state);
            return refuse(&request, "%s was replaced meanwhile: try again", path);
        }
        char field[64];
        int result;
        if (machine_is_sound(&state->machine, field, sizeof field)) {
            clients_sweep(state);
            result = verbs[i].run(&request, state);
        } else {
            result = refuse(&request, "%s is damaged (%s): create it again", path, field);
        }
        state_unlock(file, state);
        state_unmap(file, state);
        return result;
    }
    return refuse(&request, "no such request: %s with %d words", words[0], count);
}

/* A new state file at `path` from lines of text (which are cut up), in one step. 0, or 1 with the reason. */
EXPORT int nvml_sim_create(const char *path, char *text, char *answer, size_t size)
{
    struct request request = {NULL, 0, answer, size, 0};
    char temporary[4096], *rest = NULL;
    struct state *state = calloc(1, sizeof *state);
    int length = snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    if (!state || length >= (int)sizeof temporary) {
        int reason = state ? ENAMETOOLONG : ENOMEM;
        free(state);
        return refuse(&request, "cannot write %s: %s", path, strerror(reason));
    }
    memcpy(state->magic, MAGIC, sizeof state->magic);
    state->layout = text_layout();
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (!text_assign(&state->machine, line, answer, size)) {
            free(state);
            return 1;
        }
    for (struct fault *fault = state->machine.fault; fault->symbol[0]; fault++)
        fault->hash = symbol_hash(fault->symbol);
    char field[64];
    if (!machine_is_sound(&state->machine, field, sizeof field)) {
        free(state);
        return refuse(&request, "%s does not fit the rest of the machine", field);
    }
    int file = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    ssize_t length_written = file >= 0 && fchmod(file, 0666) == 0 ? write(file, state, sizeof *state) : -1;
    if (length_written >= 0 && length_written < (ssize_t)sizeof *state)
        errno = ENOSPC;
    bool written = length_written == (ssize_t)sizeof *state && rename(temporary, path) == 0;
    int error = errno;
    if (file >= 0)
        close(file);
    if (!written)
        unlink(temporary);
    free(state);
    return written ? 0 : refuse(&request, "cannot write %s: %s", path, strerror(error));
}
