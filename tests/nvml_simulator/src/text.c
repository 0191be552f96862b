/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* The state as lines of `path=value`, both ways: `create` and `set` write them bare, `describe` reads
 * them with "texts" in quotes and [lists] in brackets. */
#include "simulator.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, NUMBER32, NUMBER64, NUMBERS };

struct field {
    const char *name;
    enum kind kind;
    size_t offset;
    uint32_t capacity;
};

struct group {
    const char *name;
    size_t offset, stride;
    uint32_t capacity; /* 0: there is one, and its path has no number */
    const struct field *fields;
    const struct group *inner;
};

/* OWNER is the structure whose fields a list names. */
#define OF_TEXT(name, size) {#name, TEXT, offsetof(struct OWNER, name), size},
#define OF_U32(name) {#name, NUMBER32, offsetof(struct OWNER, name), 0},
#define OF_U64(name) {#name, NUMBER64, offsetof(struct OWNER, name), 0},
#define OF_LIST(name, capacity) {#name, NUMBERS, offsetof(struct OWNER, name), capacity},
#define FIELDS(list) {list(OF_TEXT, OF_U32, OF_U64, OF_LIST){0}}

#define OWNER system
static const struct field system_fields[] = FIELDS(SYSTEM_FIELDS);
#undef OWNER
#define OWNER gpu
static const struct field gpu_fields[] = FIELDS(GPU_FIELDS);
#undef OWNER
#define OWNER profile
static const struct field profile_fields[] = FIELDS(PROFILE_FIELDS);
#undef OWNER
#define OWNER instance
static const struct field instance_fields[] = FIELDS(INSTANCE_FIELDS);
#undef OWNER
#define OWNER compute
static const struct field compute_fields[] = FIELDS(COMPUTE_FIELDS);
#undef OWNER
#define OWNER compute_profile
static const struct field compute_profile_fields[] = FIELDS(COMPUTE_PROFILE_FIELDS);
#undef OWNER
#define OWNER client
static const struct field client_fields[] = FIELDS(CLIENT_FIELDS);
#undef OWNER
#define OWNER fault
static const struct field fault_fields[] = FIELDS(FAULT_FIELDS);
#undef OWNER

static const struct group compute_groups[] = {
    {"compute", offsetof(struct instance, compute), sizeof(struct compute), MAX_COMPUTE, compute_fields, NULL}, {0}};
static const struct group gpu_groups[] = {
    {"profile", offsetof(struct gpu, profile), sizeof(struct profile), MAX_PROFILES, profile_fields, NULL},
    {"instance", offsetof(struct gpu, instance), sizeof(struct instance), MAX_INSTANCES, instance_fields,
     compute_groups},
    {0}};
static const struct group groups[] = {
    {"system", offsetof(struct machine, system), 0, 0, system_fields, NULL},
    {"gpu", offsetof(struct machine, gpu), sizeof(struct gpu), MAX_GPUS, gpu_fields, gpu_groups},
    {"compute_profile", offsetof(struct machine, compute_profile), sizeof(struct compute_profile),
     MAX_COMPUTE_PROFILES, compute_profile_fields, NULL},
    {"client", offsetof(struct machine, client), sizeof(struct client), MAX_CLIENTS, client_fields, NULL},
    {"fault", offsetof(struct machine, fault), sizeof(struct fault), MAX_FAULTS, fault_fields, NULL},
    {0}};

static bool parse_number(const char *text, uint64_t largest, uint64_t *number)
{
    char *end;
    if (strcmp(text, "none") == 0) {
        *number = largest;
        return true;
    }
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *number = strtoull(text, &end, 0);
    return *end == '\0' && errno == 0 && *number <= largest;
}

static bool assign(char *base, const struct field *field, char *value)
{
    void *place = base + field->offset;
    uint64_t number;
    if (field->kind == TEXT) {
        if (strlen(value) >= field->capacity)
            return false;
        memset(place, 0, field->capacity);
        memcpy(place, value, strlen(value));
        return true;
    }
    if (field->kind == NUMBERS) {
        uint32_t *list = place, items[64], count = 0;
        char *rest = NULL;
        for (char *item = strtok_r(value, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
            if (count == field->capacity || !parse_number(item, UINT32_MAX, &number))
                return false;
            items[count++] = (uint32_t)number;
        }
        list[0] = count;
        memcpy(list + 1, items, count * sizeof items[0]);
        return true;
    }
    if (!parse_number(value, field->kind == NUMBER32 ? UINT32_MAX : UINT64_MAX, &number))
        return false;
    if (field->kind == NUMBER32)
        *(uint32_t *)place = (uint32_t)number;
    else
        *(uint64_t *)place = number;
    return true;
}

/* One line; `line` is cut up. On failure `error` says why and nothing is changed. */
bool text_assign(struct machine *machine, char *line, char *error, size_t size)
{
    char *value = strchr(line, '='), *rest = NULL;
    char *base = (char *)machine;
    const struct group *level = groups;
    const struct field *fields = NULL;
    char *word = NULL;
    if (value)
        *value++ = '\0';
    for (word = strtok_r(line, ".", &rest); word && value; word = strtok_r(NULL, ".", &rest)) {
        for (const struct field *field = fields; field && field->name; field++)
            if (strcmp(field->name, word) == 0) {
                if (assign(base, field, value))
                    return true;
                snprintf(error, size, "%s cannot be %s", word, *value ? value : "empty");
                return false;
            }
        while (level && level->name && strcmp(level->name, word) != 0)
            level++;
        if (!level || !level->name)
            break;
        base += level->offset;
        if (level->capacity) {
            uint64_t index;
            word = strtok_r(NULL, ".", &rest);
            if (!word || !parse_number(word, level->capacity - 1, &index))
                break;
            base += index * level->stride;
        }
        fields = level->fields;
        level = level->inner;
    }
    snprintf(error, size, "there is no %s", word ? word : line);
    return false;
}

static uint64_t layout_of(uint64_t hash, const struct group *group)
{
    for (; group->name; group++) {
        hash = (hash ^ symbol_hash(group->name) ^ group->offset ^ group->stride << 32) * 1099511628211u;
        for (const struct field *field = group->fields; field->name; field++)
            hash = (hash ^ symbol_hash(field->name) ^ (uint64_t)field->offset << 32 ^ field->kind) * 1099511628211u;
        if (group->inner)
            hash = layout_of(hash, group->inner);
    }
    return hash;
}

/* A number that differs where names, kinds or places of fields do. */
uint64_t text_layout(void)
{
    return layout_of(sizeof(struct state), groups);
}

static bool is_whole(const char *base, const struct group *group)
{
    for (; group->name; group++)
        for (uint32_t i = 0; i < (group->capacity ? group->capacity : 1); i++) {
            const char *element = base + group->offset + i * group->stride;
            for (const struct field *field = group->fields; field->name; field++) {
                const void *place = element + field->offset;
                if (field->kind == TEXT ? !memchr(place, '\0', field->capacity)
                                        : field->kind == NUMBERS && *(const uint32_t *)place > field->capacity)
                    return false;
            }
            if (group->inner && !is_whole(element, group->inner))
                return false;
        }
    return true;
}

/* Whether every text has its end and no list is longer than its room. */
bool text_is_whole(const struct machine *machine)
{
    return is_whole((const char *)machine, groups);
}

struct writer {
    char *out;
    size_t size, used;
};

static void add(struct writer *writer, const char *format, ...)
{
    va_list arguments;
    size_t room = writer->used < writer->size ? writer->size - writer->used : 0;
    va_start(arguments, format);
    int length = vsnprintf(room ? writer->out + writer->used : NULL, room, format, arguments);
    va_end(arguments);
    writer->used += (size_t)length;
}

static void add_number(struct writer *writer, uint64_t number, uint64_t none)
{
    if (number == none)
        add(writer, "none");
    else
        add(writer, "%llu", (unsigned long long)number);
}

static void dump_fields(struct writer *writer, const char *path, const char *base, const struct field *field)
{
    for (; field->name; field++) {
        const void *place = base + field->offset;
        add(writer, "%s.%s=", path, field->name);
        if (field->kind == TEXT)
            add(writer, "\"%s\"", (const char *)place);
        else if (field->kind == NUMBER32)
            add_number(writer, *(const uint32_t *)place, UINT32_MAX);
        else if (field->kind == NUMBER64)
            add_number(writer, *(const uint64_t *)place, UINT64_MAX);
        else {
            add(writer, "[");
            for (uint32_t i = 0; i < *(const uint32_t *)place; i++) {
                add(writer, i ? "," : "");
                add_number(writer, ((const uint32_t *)place)[i + 1], UINT32_MAX);
            }
            add(writer, "]");
        }
        add(writer, "\n");
    }
}

static bool in_use(const char *base, const struct field *first)
{
    const char *place = base + first->offset;
    return first->kind == TEXT ? *place != '\0' : *(const uint32_t *)(const void *)place != 0;
}

static void dump_groups(struct writer *writer, const char *path, const char *base, const struct group *group)
{
    for (; group->name; group++)
        for (uint32_t i = 0; i < (group->capacity ? group->capacity : 1); i++) {
            const char *element = base + group->offset + i * group->stride;
            char inner[128];
            if (group->capacity && !in_use(element, group->fields))
                continue;
            if (group->capacity)
                snprintf(inner, sizeof inner, "%s%s%s.%u", path, *path ? "." : "", group->name, i);
            else
                snprintf(inner, sizeof inner, "%s", group->name);
            dump_fields(writer, inner, element, group->fields);
            if (group->inner)
                dump_groups(writer, inner, element, group->inner);
        }
}

/* The length of the text, without its end; it is whole when that is less than `size`. */
size_t text_dump(const struct machine *machine, char *out, size_t size)
{
    struct writer writer = {out, size, 0};
    dump_groups(&writer, "", (const char *)machine, groups);
    return writer.used;
}
