/* A team of threads that run the parallel loops of kernels. */
#include "meta_runtime.h"

meta_program *meta_set_running(meta_program *program);

/* TVMParallelGroupEnv. */
typedef struct {
  void *counters;
  int32_t tasks;
} meta_group;
typedef int meta_task(int number, meta_group *group, void *data);

static int meta_launch(meta_task *task, void *data, int tasks);
int TVMBackendParallelLaunch(meta_task *task, void *data, int tasks);
int TVMBackendParallelBarrier(int number, meta_group *group);

#if defined(__wasm__) || defined(META_NO_THREADS)

void *meta_team_open(meta_program *program, int threads) {
  (void)program, (void)threads;
  return NULL;
}

void meta_team_close(meta_program *program, void *team) { (void)program, (void)team; }

static int meta_launch(meta_task *task, void *data, int tasks) {
  meta_group group = {NULL, 1};
  (void)tasks;
  return task(0, &group, data);
}

int TVMBackendParallelBarrier(int number, meta_group *group) {
  (void)number, (void)group;
  return 0;
}

#else

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { SPINS = 2000 }; /* looks for work before a thread sleeps; a kernel often follows another at once */

/* round: counts the loops that were started.  waiting: the workers that have not finished the loop.
 * arrived, phase: of barriers. */
typedef struct {
  meta_program *program;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  atomic_uint round, waiting, arrived, phase;
  atomic_int failed, stops;
  meta_task *task;
  void *data;
  meta_group group;
  int workers, sleeping;
  struct worker {
    void *team;
    pthread_t thread;
    int number;
  } threads[];
} meta_team;

static void pause_thread(int count) {
#if defined(__x86_64__) || defined(__i386__)
  if (count < SPINS) __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  if (count < SPINS) __asm__ volatile("yield");
#endif
  if (count >= SPINS) sched_yield();
}

static unsigned next_round(meta_team *team, unsigned seen) {
  unsigned round;
  for (int i = 0; i < SPINS; ++i) {
    if ((round = atomic_load_explicit(&team->round, memory_order_acquire)) != seen) return round;
    pause_thread(i);
  }
  pthread_mutex_lock(&team->mutex);
  ++team->sleeping;
  while ((round = atomic_load_explicit(&team->round, memory_order_acquire)) == seen)
    pthread_cond_wait(&team->wake, &team->mutex);
  --team->sleeping;
  pthread_mutex_unlock(&team->mutex);
  return round;
}

static void *work(void *argument) {
  struct worker *self = argument;
  meta_team *team = self->team;
  meta_set_running(team->program);
  for (unsigned seen = 0;;) {
    seen = next_round(team, seen);
    if (atomic_load(&team->stops)) return NULL;
    if (self->number < team->group.tasks && team->task(self->number, &team->group, team->data))
      atomic_store(&team->failed, 1);
    atomic_fetch_sub_explicit(&team->waiting, 1, memory_order_release);
  }
}

static void start_round(meta_team *team) {
  pthread_mutex_lock(&team->mutex);
  atomic_fetch_add_explicit(&team->round, 1, memory_order_release);
  if (team->sleeping) pthread_cond_broadcast(&team->wake);
  pthread_mutex_unlock(&team->mutex);
}

void *meta_team_open(meta_program *program, int threads) {
  if (threads > 256) threads = 256;
  meta_team *team = meta_allocate(program, sizeof *team + (size_t)(threads - 1) * sizeof *team->threads);
  if (team == NULL) return NULL;
  memset(team, 0, sizeof *team);
  team->program = program;
  pthread_mutex_init(&team->mutex, NULL);
  pthread_cond_init(&team->wake, NULL);
  for (int i = 0; i < threads - 1; ++i) {
    struct worker *worker = &team->threads[i];
    worker->team = team;
    worker->number = i + 1;
    if (pthread_create(&worker->thread, NULL, work, worker)) break;
    ++team->workers;
  }
  return team;
}

void meta_team_close(meta_program *program, void *opened) {
  meta_team *team = opened;
  if (team == NULL) return;
  atomic_store(&team->stops, 1);
  start_round(team);
  for (int i = 0; i < team->workers; ++i) pthread_join(team->threads[i].thread, NULL);
  pthread_cond_destroy(&team->wake);
  pthread_mutex_destroy(&team->mutex);
  meta_release(program, team);
}

static int meta_launch(meta_task *task, void *data, int tasks) {
  meta_program *program = meta_set_running(NULL);
  meta_set_running(program);
  meta_team *team = program == NULL ? NULL : program->team;
  /* A loop inside of a loop runs in its thread. */
  if (team == NULL || team->workers == 0 || atomic_load(&team->waiting)) {
    meta_group group = {NULL, 1};
    return task(0, &group, data);
  }
  int most = team->workers + 1;
  team->task = task;
  team->data = data;
  team->group = (meta_group){team, tasks > 0 && tasks < most ? tasks : most};
  atomic_store(&team->failed, 0);
  atomic_store(&team->waiting, (unsigned)team->workers);
  start_round(team);
  int status = task(0, &team->group, data);
  for (int i = 0; atomic_load_explicit(&team->waiting, memory_order_acquire); ++i) pause_thread(i);
  return status ? status : -atomic_load(&team->failed);
}

int TVMBackendParallelBarrier(int number, meta_group *group) {
  meta_team *team = group->counters;
  (void)number;
  if (team == NULL) return 0;
  unsigned phase = atomic_load(&team->phase);
  if (atomic_fetch_add(&team->arrived, 1) + 1 == (unsigned)group->tasks) {
    atomic_store(&team->arrived, 0);
    atomic_fetch_add(&team->phase, 1);
  }
  for (int i = 0; atomic_load(&team->phase) == phase; ++i) pause_thread(i);
  return 0;
}

#endif

int TVMBackendParallelLaunch(meta_task *task, void *data, int tasks) { return meta_launch(task, data, tasks); }

/* Kernels call these by variables of theirs, which are weak. */
extern int (*__TVMBackendParallelLaunch)(meta_task *, void *, int);
extern int (*__TVMBackendParallelBarrier)(int, meta_group *);
int (*__TVMBackendParallelLaunch)(meta_task *, void *, int) = TVMBackendParallelLaunch;
int (*__TVMBackendParallelBarrier)(int, meta_group *) = TVMBackendParallelBarrier;
