/* The kernel module's side of MIG: a file and a device of its own for each instance, by which a container is let at it.
 * They are made where the simulated module's tree is, in a node, and not in its containers. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "state.h"

/* The kernel's range for local use: such a file can never reach a real GPU of the host. */
enum { CAPABILITY_MAJOR = 61, MINORS_A_GPU = 64 };
#define TREE "/proc/driver/nvidia/capabilities"
#define MINORS "/proc/driver/nvidia-caps/mig-minors"

/* The minor number that mig-minors lists for an instance, or for one that computes in it. */
static unsigned minor_of(int gpu, int instance, int compute)
{
    return 3 + (unsigned)gpu * MINORS_A_GPU + (unsigned)(instance * (COMPUTES + 1) + compute + 1);
}

static void grant(const char *folder, unsigned minor)
{
    char path[256];
    mkdir(folder, 0555);
    snprintf(path, sizeof path, "%s/access", folder);
    FILE *file = fopen(path, "we");
    if (file) {
        fprintf(file, "DeviceFileMinor: %u\nDeviceFileMode: 292\nDeviceFileModify: 0\n", minor);
        fclose(file);
    }
    snprintf(path, sizeof path, "/dev/nvidia-caps/nvidia-cap%u", minor);
    mkdir("/dev/nvidia-caps", 0755);
    if (mknod(path, S_IFCHR | 0444, makedev(CAPABILITY_MAJOR, minor)) == 0)
        chmod(path, 0444);
}

static void take(const char *folder, unsigned minor)
{
    char path[256];
    snprintf(path, sizeof path, "%s/access", folder);
    unlink(path);
    rmdir(folder);
    snprintf(path, sizeof path, "/dev/nvidia-caps/nvidia-cap%u", minor);
    unlink(path);
}

static void settle(const char *folder, unsigned minor, int wanted)
{
    if (wanted)
        grant(folder, minor);
    else
        take(folder, minor);
}

void capabilities_write(const struct state *state)
{
    char folder[128];
    if (access(MINORS, F_OK))
        return;
    for (int g = 0; g < GPUS; g++) {
        if (!state->gpus[g].used)
            continue;
        snprintf(folder, sizeof folder, TREE "/gpu%d", g);
        mkdir(folder, 0555);
        snprintf(folder, sizeof folder, TREE "/gpu%d/mig", g);
        mkdir(folder, 0555);
        for (int i = 0; i < INSTANCES; i++) {
            const struct instance *instance = &state->gpus[g].instances[i];
            if (instance->used) {
                snprintf(folder, sizeof folder, TREE "/gpu%d/mig/gi%d", g, i + 1);
                grant(folder, minor_of(g, i, -1));
            }
            for (int c = 0; c < COMPUTES; c++) {
                snprintf(folder, sizeof folder, TREE "/gpu%d/mig/gi%d/ci%d", g, i + 1, c);
                settle(folder, minor_of(g, i, c), instance->used && instance->computes[c].used);
            }
            snprintf(folder, sizeof folder, TREE "/gpu%d/mig/gi%d", g, i + 1);
            if (!instance->used)
                take(folder, minor_of(g, i, -1));
        }
    }
}
