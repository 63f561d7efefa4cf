/* Start, versions, texts: what a client asks before it asks of any GPU. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state.h"

static int started;

int initialized(void)
{
    return started > 0;
}

/* A device file of a driver that is there opens; of the simulated one the kernel says that nothing is behind it. */
static int opens(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0)
        close(file);
    return file >= 0 || errno == ENXIO;
}

int visible(const struct state *state, int *gpus)
{
    int count = 0;
    for (int n = 0; n < GPUS; n++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%d", n);
        if (state->gpus[n].used && !state->gpus[n].hidden && opens(path))
            gpus[count++] = n;
    }
    return count;
}

static const char *user_space(const struct state *state)
{
    return *library_version() ? library_version() : state->node.driver;
}

API nvmlReturn nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    if (!opens("/dev/nvidiactl"))
        return NVML_DRIVER_NOT_LOADED;
    const struct state *state = state_look();
    if (!state || !*state->node.module)
        return NVML_DRIVER_NOT_LOADED;
    if (strcmp(state->node.module, user_space(state)))
        return NVML_VERSION_MISMATCH;
    __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

API nvmlReturn nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

API nvmlReturn nvmlShutdown(void)
{
    if (!initialized())
        return NVML_UNINITIALIZED;
    __atomic_sub_fetch(&started, 1, __ATOMIC_SEQ_CST);
    return NVML_SUCCESS;
}

API const char *nvmlErrorString(nvmlReturn result)
{
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_UNINITIALIZED: return "Uninitialized";
    case NVML_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_NOT_SUPPORTED: return "Not Supported";
    case NVML_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_NOT_FOUND: return "Not Found";
    case NVML_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_TIMEOUT: return "Timeout";
    case NVML_GPU_IS_LOST: return "GPU is lost";
    case NVML_OPERATING_SYSTEM: return "The operating system has blocked the request";
    case NVML_VERSION_MISMATCH: return "Driver/library version mismatch";
    case NVML_IN_USE: return "In use by another client";
    case NVML_MEMORY: return "Insufficient Memory";
    case NVML_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case NVML_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

nvmlReturn copy_text(char *to, unsigned size, const char *text)
{
    if (!to)
        return NVML_INVALID_ARGUMENT;
    if (strlen(text) + 1 > size)
        return NVML_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    const struct state *state = initialized() ? state_look() : NULL;
    return state ? copy_text(version, size, state->node.module) : NVML_UNINITIALIZED;
}

API nvmlReturn nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    const struct state *state = initialized() ? state_look() : NULL;
    if (!state)
        return NVML_UNINITIALIZED;
    char text[2 * TEXT];
    snprintf(text, sizeof text, "%d.%s", atoi(state->node.cuda), user_space(state));
    return copy_text(version, size, text);
}

API nvmlReturn nvmlSystemGetDriverBranch(void *branch, unsigned size)
{
    const struct state *state = initialized() ? state_look() : NULL;
    if (!state)
        return NVML_UNINITIALIZED;
    char text[TEXT];
    snprintf(text, sizeof text, "r%d_00", atoi(state->node.module));
    /* A version word comes first. */
    return copy_text((char *)branch + sizeof(unsigned), size, text);
}

API nvmlReturn nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    const struct state *state = state_look();
    if (!state)
        return NVML_UNINITIALIZED;
    int major = 0, minor = 0;
    sscanf(state->node.cuda, "%d.%d", &major, &minor);
    *version = major * 1000 + minor * 10;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

API nvmlReturn nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
    char path[48], text[512];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == EACCES ? NVML_NO_PERMISSION : NVML_NOT_FOUND;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length < 0)
        return NVML_NOT_FOUND;
    text[length] = 0;
    if (!size || !name)
        return NVML_INVALID_ARGUMENT;
    snprintf(name, size, "%s", text);
    return NVML_SUCCESS;
}

API nvmlReturn nvmlUnitGetCount(unsigned *count)
{
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlGetExcludedDeviceCount(unsigned *count)
{
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn nvmlSystemGetHicVersion(unsigned *count, void *entries)
{
    (void)entries;
    *count = 0;
    return NVML_SUCCESS;
}
