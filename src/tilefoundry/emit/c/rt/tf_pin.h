/* Where the threads of a program run.
 *
 * OpenMP's workers are kept on processors of their own, one for each core of the hardware before
 * any second thread of one, beginning behind the processor that the caller runs on. The caller's
 * thread is left alone, and no processor is used that the caller's thread may not use. Who sets
 * OMP_PROC_BIND (to anything) decides instead; so does the scheduler where there are more threads
 * than processors, and where the system is not Linux.
 */
#ifndef TF_PIN_H
#define TF_PIN_H

#if defined(__linux__)
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define TF_PROCESSORS CPU_SETSIZE
typedef struct { cpu_set_t may; int count, cpus[TF_PROCESSORS]; } tf_processors;

/* The lowest thread of the hardware core of `cpu`; `cpu` where the system does not say. */
static inline int tf_sibling(int cpu) {
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "r");
    if (!file) return cpu;
    if (fscanf(file, "%d", &first) != 1) first = cpu;
    fclose(file);
    return first;
}
/* The processors of a mask, first threads of hardware cores first. */
static inline void tf_find(tf_processors *found) {
    cpu_set_t seen;
    int second[TF_PROCESSORS], seconds = 0;
    found->count = 0;
    CPU_ZERO(&seen);
    for (int cpu = 0; cpu < TF_PROCESSORS; cpu++) {
        if (!CPU_ISSET(cpu, &found->may)) continue;
        int core = tf_sibling(cpu);
        if (core < 0 || core >= TF_PROCESSORS) core = cpu;
        if (CPU_ISSET(core, &seen)) second[seconds++] = cpu;
        else found->cpus[found->count++] = cpu;
        CPU_SET(core, &seen);
    }
    for (int n = 0; n < seconds; n++) found->cpus[found->count++] = second[n];
}
/* What a caller hands to its team: its processors, and the place among them of the one it runs
 * on; -1 where its threads go where they like, no processors where OpenMP decides. */
typedef struct { const tf_processors *all; int at; } tf_team;
static inline tf_team tf_team_of(int threads) {
    static __thread tf_processors mine;
    static __thread int asked, theirs;
    cpu_set_t may;
    if (!asked) asked = 1, theirs = getenv("OMP_PROC_BIND") != 0;
    if (theirs || sched_getaffinity(0, sizeof may, &may)) return (tf_team){0, -1};
    if (!CPU_EQUAL(&may, &mine.may)) mine.may = may, tf_find(&mine);
    if (threads < 2 || threads > mine.count) return (tf_team){&mine, -1};
    int cpu = sched_getcpu(), at = 0;
    for (int n = 0; n < mine.count; n++)
        if (mine.cpus[n] == cpu) at = n;
    return (tf_team){&mine, at};
}
/* Called by each thread of the team: the caller's is number 0. */
static inline void tf_pin(tf_team team, int number) {
    static __thread int pinned = -1;
    if (!team.all || !number) return;
    int cpu = team.at < 0 ? -1 : team.all->cpus[(team.at + number) % team.all->count];
    if (cpu == pinned) return;
    cpu_set_t where = team.all->may;
    if (cpu >= 0) {
        CPU_ZERO(&where);
        CPU_SET(cpu, &where);
    }
    if (!sched_setaffinity(0, sizeof where, &where)) pinned = cpu;
}
#else
typedef int tf_team;
static inline tf_team tf_team_of(int threads) { return threads; }
static inline void tf_pin(tf_team team, int number) { (void)team, (void)number; }
#endif

#endif
