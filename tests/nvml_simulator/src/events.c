/* Copyright: (c) 2026, gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */

/* Events, for clients that wait for them: none ever comes. */
#include "simulator.h"

#include <time.h>

enum { SINGLE_BIT_ECC = 1, DOUBLE_BIT_ECC = 2, XID = 8, OF_ALL = SINGLE_BIT_ECC | DOUBLE_BIT_ECC | XID };
enum { OF_HOPPER = 0xFF9F }; /* recorded on an H200 */
enum { THE_SET = 1 }; /* all of them are the same, since nothing is ever in one */

static unsigned long long supported_by(const struct gpu *gpu)
{
    return gpu->architecture >= ARCH_HOPPER ? OF_HOPPER : OF_ALL;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    BEGIN_GPU(device);
    REQUIRE(types, NVML_ERROR_INVALID_ARGUMENT);
    *types = supported_by(gpu);
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlEventSetCreate(uintptr_t *set)
{
    BEGIN(false);
    REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
    *set = THE_SET;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlEventSetFree(uintptr_t set)
{
    BEGIN(false);
    END(set == THE_SET ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT);
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, uintptr_t set)
{
    BEGIN_GPU(device);
    REQUIRE(set == THE_SET && types, NVML_ERROR_INVALID_ARGUMENT);
    END((types & ~supported_by(gpu)) == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(uintptr_t set, void *data, unsigned int milliseconds)
{
    BEGIN(false);
    REQUIRE(set == THE_SET && data, NVML_ERROR_INVALID_ARGUMENT);
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000l};
    call_pause(&call);
    nanosleep(&time, NULL);
    begun = call_resume(&call);
    END(begun == NVML_SUCCESS ? NVML_ERROR_TIMEOUT : begun);
}

EXPORT nvmlReturn_t nvmlEventSetWait(uintptr_t set, void *data, unsigned int milliseconds)
{
    return nvmlEventSetWait_v2(set, data, milliseconds);
}
