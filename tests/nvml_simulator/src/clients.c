/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* Who holds a GPU: processes that initialised NVML, clients which the tool added, the persistence daemon. */
#include "simulator.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *proc_folder(void)
{
    const char *folder = getenv("NVML_SIM_PROC");
    return folder && *folder ? folder : "/proc";
}

/* Its number in that folder. A driver knows a process in a container by its number outside, and all others as well. */
pid_t own_pid(void)
{
    if (strcmp(proc_folder(), "/proc") == 0)
        return getpid();
    char path[4096], text[16] = "";
    snprintf(path, sizeof path, "%s/self", proc_folder());
    return readlink(path, text, sizeof text - 1) > 0 ? (pid_t)atoi(text) : getpid();
}

static ssize_t read_proc(pid_t pid, const char *name, char *text, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%d/%s", proc_folder(), (int)pid, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, size - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    return length;
}

/* When the process started, in clock ticks since boot; 0 when it has ended (a zombie has). */
uint64_t process_start(pid_t pid)
{
    char text[1024];
    if (read_proc(pid, "stat", text, sizeof text) <= 0)
        return 0;
    char *word = strrchr(text, ')'); /* the name before it may hold spaces */
    if (!word || word[1] == '\0' || word[2] == 'Z' || word[2] == 'X')
        return 0;
    word += 2;
    for (int field = 3; field < 22 && word; field++) {
        word = strchr(word, ' ');
        if (word)
            word++;
    }
    return word ? strtoull(word, NULL, 10) : 0;
}

/* The command's path as it was called, control characters as '?'; empty for a process that is not there. */
void process_name(pid_t pid, char *name, size_t size)
{
    char text[4096];
    name[0] = '\0';
    if (read_proc(pid, "cmdline", text, sizeof text) > 0 && text[0])
        snprintf(name, size, "%.*s", (int)(size - 1), text);
    else if (read_proc(pid, "comm", text, sizeof text) > 0) {
        text[strcspn(text, "\n")] = '\0';
        snprintf(name, size, "%.*s", (int)(size - 1), text);
    }
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 0x7f)
            *name = '?';
}

bool client_holds(const struct client *client, uint32_t gpu)
{
    return client->id && (client->gpu == NONE || client->gpu == gpu);
}

bool daemon_holds(const struct gpu *gpu)
{
    return gpu->daemon_pid && process_start((pid_t)gpu->daemon_pid) == gpu->daemon_start;
}

struct client *client_of_process(struct machine *machine, pid_t pid)
{
    for (struct client *client = machine->client; client < machine->client + MAX_CLIENTS; client++)
        if (client->id && client->nvml && client->pid == (uint32_t)pid)
            return client;
    return NULL;
}

/* NULL when the table is full. The id is written last: with it the entry counts. */
struct client *client_add(struct machine *machine, const struct client *wanted)
{
    for (struct client *client = machine->client; client < machine->client + MAX_CLIENTS; client++)
        if (!client->id) {
            uint32_t id = ++machine->system.clients;
            *client = *wanted;
            atomic_signal_fence(memory_order_seq_cst);
            client->id = id;
            return client;
        }
    return NULL;
}

/* With persistence off the driver deinitialises a GPU when its last client goes. */
void gpu_left(struct state *state, uint32_t index)
{
    struct gpu *gpu = &state->machine.gpu[index];
    if (gpu->persistence || daemon_holds(gpu))
        return;
    for (const struct client *client = state->machine.client; client < state->machine.client + MAX_CLIENTS; client++)
        if (client_holds(client, index))
            return;
    gpu_forget_settings(gpu);
}

/* The daemon releases a GPU, or died. The memory of a coherent GPU leaves the system then: old handles are dead. */
void daemon_left(struct state *state, uint32_t index)
{
    struct gpu *gpu = &state->machine.gpu[index];
    change_all(state);
    if (gpu->daemon_pid && gpu->addressing_mode == ADDRESSING_ATS)
        gpu->generation++;
    gpu->daemon_pid = 0;
    gpu_left(state, index);
}

void client_remove(struct state *state, struct client *client)
{
    struct client gone = *client;
    change_all(state);
    memset(client, 0, sizeof *client);
    for (uint32_t gpu = 0; gpu < state->machine.system.gpu_count; gpu++)
        if (client_holds(&gone, gpu))
            gpu_left(state, gpu);
}

/* Removes the clients whose process has ended, and what a dead daemon held. */
void clients_sweep(struct state *state)
{
    struct machine *machine = &state->machine;
    for (struct client *client = machine->client; client < machine->client + MAX_CLIENTS; client++)
        if (client->id && client->start_time && process_start((pid_t)client->pid) != client->start_time)
            client_remove(state, client);
    for (uint32_t gpu = 0; gpu < machine->system.gpu_count; gpu++)
        if (machine->gpu[gpu].daemon_pid && !daemon_holds(&machine->gpu[gpu]))
            daemon_left(state, gpu);
}

bool gpu_has_other_clients(struct machine *machine, uint32_t gpu, pid_t except)
{
    for (const struct client *client = machine->client; client < machine->client + MAX_CLIENTS; client++)
        if (client_holds(client, gpu) && client->pid != (uint32_t)except)
            return true;
    return daemon_holds(&machine->gpu[gpu]);
}

/* Whether something computes or draws on the GPU, on the whole of it or in an instance. */
bool gpu_has_work(const struct machine *machine, uint32_t gpu)
{
    for (const struct client *client = machine->client; client < machine->client + MAX_CLIENTS; client++)
        if (client_holds(client, gpu) && client->kind != MONITOR)
            return true;
    return false;
}
