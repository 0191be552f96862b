/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* What the driver's release does not have, the library does not export.
 *
 * Clients probe by dlsym, so an answer in place of a missing symbol leads them astray. There is one library for all
 * releases. When it is loaded it looks up the release in the state file and takes what came later out of its own table
 * of dynamic symbols: a symbol without a value is none to the dynamic linker.
 * Without a state everything stays, for then nobody knows the release. */
#include "simulator.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* One line for each function: NAME, the first branch that has it, the first without it (0: none). */
static const struct {
    const char *name;
    unsigned int since, gone;
} releases[] = {
#define FUNCTION(name, since, gone) {name, since, gone},
#include "releases.def"
#undef FUNCTION
};

struct symbols {
    ElfW(Sym) *table;
    const char *names;
    size_t count;
};

/* An address in the dynamic section, which the dynamic linker may have left as it is in the file. */
static uintptr_t at(const struct link_map *map, uintptr_t address)
{
    return address < map->l_addr ? map->l_addr + address : address;
}

/* Those of this library. Needs DT_HASH, which tells their number. */
static bool own_symbols(struct symbols *own)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1((void *)(uintptr_t)nvmlInit_v2, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    *own = (struct symbols){0};
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            own->table = (ElfW(Sym) *)at(map, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_STRTAB)
            own->names = (const char *)at(map, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_HASH)
            own->count = ((const uint32_t *)at(map, entry->d_un.d_ptr))[1];
    }
    return own->table && own->names && own->count;
}

static bool is_function(const struct symbols *own, const ElfW(Sym) *symbol)
{
    return (symbol->st_info & 0xf) == STT_FUNC && strncmp(own->names + symbol->st_name, "nvml", 4) == 0;
}

/* 580 of the release 580.159.04. */
unsigned int driver_branch(const struct machine *machine)
{
    return (unsigned int)strtoul(machine->system.driver_version, NULL, 10);
}

static bool release_lacks(unsigned int branch, const char *name)
{
    for (size_t i = 0; i < sizeof releases / sizeof releases[0]; i++)
        if (strcmp(releases[i].name, name) == 0)
            return branch < releases[i].since || (releases[i].gone && branch >= releases[i].gone);
    return false;
}

static bool is_hidden(const struct machine *machine, const char *name)
{
    for (const struct fault *fault = machine->fault; fault < machine->fault + MAX_FAULTS && fault->symbol[0]; fault++)
        if (fault->kind == HIDDEN && strncmp(fault->symbol, name, sizeof fault->symbol) == 0)
            return true;
    return false;
}

static void take_out(const struct symbols *own, const struct machine *machine)
{
    unsigned int branch = driver_branch(machine);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)own->table & ~(page - 1), end = (uintptr_t)(own->table + own->count);
    if (mprotect((void *)first, end - first, PROT_READ | PROT_WRITE) != 0)
        return;
    for (ElfW(Sym) *symbol = own->table; symbol < own->table + own->count; symbol++) {
        const char *name = own->names + symbol->st_name;
        if (is_function(own, symbol) && (release_lacks(branch, name) || is_hidden(machine, name))) {
            symbol->st_value = 0;
            symbol->st_shndx = SHN_UNDEF;
        }
    }
    mprotect((void *)first, end - first, PROT_READ);
}

/* Before anybody can look one up. */
static void __attribute__((constructor)) export_what_the_release_has(void)
{
    struct symbols own;
    struct state *state;
    int file = own_symbols(&own) ? state_map(state_path(), &state) : -1;
    if (file < 0)
        return;
    char field[64];
    if (machine_is_sound(&state->machine, field, sizeof field))
        take_out(&own, &state->machine);
    state_unmap(file, state);
}

/* Whether the simulator has this function, for some release. */
EXPORT int nvml_sim_has(const char *name)
{
    struct symbols own;
    if (strncmp(name, "nvml_sim", 8) == 0 || !own_symbols(&own))
        return 0;
    for (const ElfW(Sym) *symbol = own.table; symbol < own.table + own.count; symbol++)
        if (is_function(&own, symbol) && strcmp(own.names + symbol->st_name, name) == 0)
            return 1;
    return 0;
}
