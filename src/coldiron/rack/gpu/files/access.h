/* Functions that differ only in what they answer. `gpu`, `state` and `handle` are at hand in the expressions. */
#ifndef COLDIRON_ACCESS_H
#define COLDIRON_ACCESS_H

#include "state.h"

#define LOOK(which, device)                                                                                            \
    struct handle *handle;                                                                                             \
    struct state *state;                                                                                               \
    struct gpu *gpu;                                                                                                   \
    nvmlReturn result = which(device, &handle, &state, &gpu);                                                          \
    (void)handle;                                                                                                      \
    (void)state;                                                                                                       \
    if (result != NVML_SUCCESS)                                                                                        \
        return result

/* Answered for a slice as for its GPU. */
#define DEVICE_WORD(function, type, word)                                                                              \
    API nvmlReturn function(void *device, type *value)                                                                 \
    {                                                                                                                  \
        LOOK(device_look, device);                                                                                     \
        *value = (type)(word);                                                                                         \
        return NVML_SUCCESS;                                                                                           \
    }

/* Answered for whole GPUs alone. */
#define GPU_WORD(function, type, word)                                                                                 \
    API nvmlReturn function(void *device, type *value)                                                                 \
    {                                                                                                                  \
        LOOK(gpu_look, device);                                                                                        \
        *value = (type)(word);                                                                                         \
        return NVML_SUCCESS;                                                                                           \
    }

#define GPU_TEXT(function, text)                                                                                       \
    API nvmlReturn function(void *device, char *to, unsigned size)                                                     \
    {                                                                                                                  \
        LOOK(gpu_look, device);                                                                                        \
        return copy_text(to, size, text);                                                                              \
    }

#endif
