/* A pretended GPU, for programs that use one through CUDA's runtime and driver.

   Memory is host memory, copies are made, streams and events are handles, and kernels do nothing. The library is loaded
   before the real ones (LD_PRELOAD), and claims to be libcuda.so.1. Calls that are forbidden while a stream is recorded
   are errors here as well. `__init__.py` adds all functions that are missing here; they return 0. */

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CUDAAPI
#include <cuda.h>
#include <cuda_runtime_api.h>

#define SHOWN __attribute__((visibility("default")))

enum { UNSUPPORTED = 900, INVALIDATED = 901, IMPLICIT = 906, WRONG_THREAD = 908, INVALID = 1 };
enum { NO_CONTEXT = 201, WRONG_HANDLE = 400 };

static __thread int device;
static __thread int context; /* of the thread: its GPU's number plus one, or 0 if it has no context */
static __thread enum cudaStreamCaptureMode mode;

/* Give the thread a context, as CUDA's runtime does when a thread asks it for work. Functions that are not known to do
   so leave the thread without one. */
static void bind(void) { context = device + 1; }

static int devices(void) {
  const char *asked = getenv("PRETEND_GPUS");
  return asked ? atoi(asked) : 1;
}

/* ---- what was allocated: by address, so that a pointer tells its kind */

struct area { char *begin; size_t bytes; int device, kind; struct area *next; };
static struct area *areas;
static size_t live, most; /* bytes of a GPU's memory */
SHOWN size_t pretended_live(void) { return live; }
SHOWN size_t pretended_most(int forget) { /* since it was last forgotten */
  size_t found = most;
  if (forget) most = live;
  return found;
}
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *area(size_t bytes, int kind) {
  struct area *made = malloc(sizeof *made);
  size_t whole = (bytes + 511) / 512 * 512 + 512;
  char *raw = calloc(1, whole + 512);
  made->begin = (char *)(((size_t)raw + 511) / 512 * 512);
  made->bytes = bytes; made->device = device; made->kind = kind;
  pthread_mutex_lock(&lock);
  made->next = areas; areas = made;
  if (kind == cudaMemoryTypeDevice && (live += bytes) > most) most = live;
  pthread_mutex_unlock(&lock);
  return made->begin;
}

static void forget(void *at) { /* its memory is not freed: a test is short, and a late reader must not crash */
  pthread_mutex_lock(&lock);
  for (struct area **p = &areas; *p; p = &(*p)->next)
    if ((*p)->begin == at) {
      struct area *gone = *p;
      if (gone->kind == cudaMemoryTypeDevice) live -= gone->bytes;
      *p = gone->next; free(gone); break;
    }
  pthread_mutex_unlock(&lock);
}

SHOWN cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *at) {
  memset(found, 0, sizeof *found);
  found->type = cudaMemoryTypeUnregistered; found->device = -1;
  pthread_mutex_lock(&lock);
  for (struct area *a = areas; a; a = a->next)
    if ((char *)at >= a->begin && (char *)at < a->begin + (a->bytes ? a->bytes : 1)) {
      found->type = a->kind; found->device = a->device;
      found->devicePointer = found->hostPointer = (void *)at;
      break;
    }
  pthread_mutex_unlock(&lock);
  return 0;
}

/* ---- recording */

struct stream {
  int recording; /* 1: it is recorded, 2: that has failed */
  unsigned long long id;
  enum cudaStreamCaptureMode mode;
  struct stream *origin, *joined[16]; /* those that wait for it are recorded as well */
  int joined_count;
};
static struct stream first; /* the default one */
static __thread struct stream *recorded; /* begun by this thread */
static struct stream *active[64]; /* recordings of all threads */
static int active_count;
static unsigned long long recordings;

static struct stream *of(cudaStream_t s) { return s ? (struct stream *)s : &first; }

static int spoil(struct stream *one) { /* the recording has failed, and so has the call */
  one->recording = 2;
  for (int i = 0; i < one->joined_count; i++) one->joined[i]->recording = 2;
  return 1;
}
static int spoil_all(int only_global) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < active_count; i++)
    if (!only_global || active[i]->mode == cudaStreamCaptureModeGlobal) found = spoil(active[i]);
  pthread_mutex_unlock(&lock);
  return found;
}
static int forbidden(void) { /* a call that is unsafe while a stream is recorded: what the modes allow */
  if (mode == cudaStreamCaptureModeRelaxed) return 0;
  if (recorded && recorded->mode != cudaStreamCaptureModeRelaxed) return spoil(recorded);
  return mode == cudaStreamCaptureModeGlobal && spoil_all(1);
}

SHOWN cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *given) {
  enum cudaStreamCaptureMode before = mode; mode = *given; *given = before; return 0;
}
#undef cuThreadExchangeStreamCaptureMode
SHOWN CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *given) {
  return (CUresult)cudaThreadExchangeStreamCaptureMode((enum cudaStreamCaptureMode *)given);
}
SHOWN cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
  if (!s || of(s)->recording) return UNSUPPORTED;
  bind();
  of(s)->recording = 1; of(s)->id = ++recordings; of(s)->mode = m; of(s)->origin = recorded = of(s);
  of(s)->joined_count = 0;
  pthread_mutex_lock(&lock);
  active[active_count++] = of(s);
  pthread_mutex_unlock(&lock);
  return 0;
}
SHOWN cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t g, const cudaGraphNode_t *n,
                                                const cudaGraphEdgeData *d, size_t c, enum cudaStreamCaptureMode m) {
  return cudaStreamBeginCapture(s, m);
}
SHOWN cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
  struct stream *ended = of(s);
  int failed = ended->recording == 2;
  if (!ended->recording || ended->origin != ended) return INVALID;
  if (recorded != ended && ended->mode != cudaStreamCaptureModeRelaxed) return WRONG_THREAD;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < active_count; i++)
    if (active[i] == ended) active[i--] = active[--active_count];
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < ended->joined_count; i++) ended->joined[i]->recording = 0;
  ended->recording = 0;
  if (recorded == ended) recorded = NULL;
  *graph = failed ? NULL : calloc(1, 64);
  return failed ? INVALIDATED : 0;
}
static enum cudaStreamCaptureStatus status_of(struct stream *s) {
  return s->recording == 2   ? cudaStreamCaptureStatusInvalidated
         : s->recording == 1 ? cudaStreamCaptureStatusActive
                             : cudaStreamCaptureStatusNone;
}
SHOWN cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
  if (!s && recorded) return UNSUPPORTED;
  *status = status_of(of(s));
  return 0;
}
SHOWN cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                           cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                           const cudaGraphEdgeData **edges, size_t *count) {
  static char some[64];
  *status = status_of(of(s));
  if (id) *id = of(s)->id;
  if (graph) *graph = (cudaGraph_t)some;
  if (nodes) *nodes = NULL;
  if (edges) *edges = NULL;
  if (count) *count = 0;
  return 0;
}
SHOWN cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t g, unsigned long long f) {
  *made = calloc(1, 64); return 0;
}
SHOWN cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t g, unsigned long long f) {
  *made = calloc(1, 64); return 0;
}
SHOWN cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *count) { *count = 1; return 0; }

/* While a stream of a GPU is recorded, in any thread and mode, waiting for that GPU is an error. */
SHOWN cudaError_t cudaDeviceSynchronize(void) { bind(); return spoil_all(0) ? UNSUPPORTED : 0; }
SHOWN cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (of(s)->recording) { spoil(of(s)->origin); return UNSUPPORTED; }
  return forbidden() ? UNSUPPORTED : 0;
}
SHOWN cudaError_t cudaStreamQuery(cudaStream_t s) { return of(s)->recording ? UNSUPPORTED : 0; }
SHOWN cudaError_t cudaStreamCreate(cudaStream_t *s) { bind(); *s = calloc(1, sizeof(struct stream)); return 0; }
SHOWN cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) { return cudaStreamCreate(s); }
SHOWN cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int p) { return cudaStreamCreate(s); }
SHOWN cudaError_t cudaStreamGetPriority(cudaStream_t s, int *p) { *p = 0; return 0; }
SHOWN cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most) { *least = 0; *most = -5; return 0; }

/* ---- events */

struct event { struct timespec at; struct stream *origin; unsigned long long id; };
SHOWN cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f) {
  *e = calloc(1, sizeof(struct event)); return 0;
}
SHOWN cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
SHOWN cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  struct event *event = (struct event *)e;
  clock_gettime(CLOCK_MONOTONIC, &event->at);
  event->origin = of(s)->recording ? of(s)->origin : NULL;
  event->id = of(s)->id;
  return 0;
}
SHOWN cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) {
  struct stream *waits = of(s), *origin = ((struct event *)e)->origin;
  if (!origin || !origin->recording || origin->id != ((struct event *)e)->id || waits->recording) return 0;
  if (origin->joined_count == 16) return UNSUPPORTED;
  waits->recording = origin->recording; waits->id = origin->id; waits->origin = origin;
  origin->joined[origin->joined_count++] = waits;
  return 0;
}
SHOWN cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { return cudaEventRecord(e, s); }
SHOWN cudaError_t cudaEventSynchronize(cudaEvent_t e) { return forbidden() ? UNSUPPORTED : 0; }
SHOWN cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  struct timespec x = ((struct event *)a)->at, y = ((struct event *)b)->at;
  *ms = (y.tv_sec - x.tv_sec) * 1e3f + (y.tv_nsec - x.tv_nsec) * 1e-6f;
  return 0;
}

/* ---- memory */

SHOWN cudaError_t cudaMalloc(void **at, size_t n) {
  bind();
  if (forbidden()) return UNSUPPORTED;
  *at = area(n, cudaMemoryTypeDevice); return 0;
}
SHOWN cudaError_t cudaMallocManaged(void **at, size_t n, unsigned f) { *at = area(n, cudaMemoryTypeManaged); return 0; }
SHOWN cudaError_t cudaHostAlloc(void **at, size_t n, unsigned f) { *at = area(n, cudaMemoryTypeHost); return 0; }
SHOWN cudaError_t cudaMallocHost(void **at, size_t n) { return cudaHostAlloc(at, n, 0); }
SHOWN cudaError_t cudaFree(void *at) { forget(at); return 0; }
SHOWN cudaError_t cudaFreeHost(void *at) { forget(at); return 0; }
SHOWN cudaError_t cudaMemGetInfo(size_t *unused, size_t *all) {
  *all = 80ull << 30; *unused = 70ull << 30; return 0;
}
SHOWN cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind k) {
  bind();
  if (forbidden()) return IMPLICIT;
  memmove(to, from, n); return 0;
}
SHOWN cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s) {
  bind();
  memmove(to, from, n); return 0;
}
SHOWN cudaError_t cudaMemcpyPeerAsync(void *to, int d, const void *from, int e, size_t n, cudaStream_t s) {
  memmove(to, from, n); return 0;
}
SHOWN cudaError_t cudaMemset(void *at, int v, size_t n) { bind(); memset(at, v, n); return 0; }
SHOWN cudaError_t cudaMemsetAsync(void *at, int v, size_t n, cudaStream_t s) { bind(); memset(at, v, n); return 0; }
SHOWN cudaError_t cudaGetSymbolAddress(void **at, const void *symbol) { *at = area(4096, cudaMemoryTypeDevice); return 0; }

/* ---- what kind of GPU it is: an H100 */

SHOWN cudaError_t cudaGetDeviceCount(int *n) { *n = devices(); return 0; }
SHOWN cudaError_t cudaGetDevice(int *n) { *n = device; return 0; }
SHOWN cudaError_t cudaSetDevice(int n) {
  if (n < 0 || n >= devices()) return 101;
  device = n; bind(); return 0;
}
SHOWN cudaError_t cudaDriverGetVersion(int *v) { *v = 13020; return 0; }
SHOWN cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }
SHOWN cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = 0; return 0; }
SHOWN cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int n) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "A GPU that is none");
  p->totalGlobalMem = 80ull << 30; p->sharedMemPerBlock = 48 << 10; p->sharedMemPerBlockOptin = 227 << 10;
  p->sharedMemPerMultiprocessor = 228 << 10; p->regsPerBlock = p->regsPerMultiprocessor = 65536; p->warpSize = 32;
  p->maxThreadsPerBlock = 1024; p->maxThreadsPerMultiProcessor = 2048; p->multiProcessorCount = 132;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = 9; p->minor = 0; p->l2CacheSize = 50 << 20; p->memoryBusWidth = 5120; p->unifiedAddressing = 1;
  p->concurrentKernels = 1; p->pciBusID = n + 1; p->maxBlocksPerMultiProcessor = 32;
  return 0;
}
SHOWN cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int n) {
  switch ((int)a) {
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *v = 1024; break;
    case cudaDevAttrMaxGridDimX: *v = 2147483647; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *v = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *v = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = 227 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = 228 << 10; break;
    case cudaDevAttrMultiProcessorCount: *v = 132; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = 2048; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrComputeCapabilityMajor: *v = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *v = 0; break;
    default: *v = 1;
  }
  return 0;
}
SHOWN CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice n) { /* numbered as above */
  switch ((int)a) {
    case 150: *v = 227 << 10; return 0; /* shared memory of a block at most, as Triton asks for it first */
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *v = 65536; return 0;
    default: return (CUresult)cudaDeviceGetAttribute(v, (enum cudaDeviceAttr)a, n);
  }
}
SHOWN CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) {
  *v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : a == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
  return 0;
}
SHOWN CUresult cuDriverGetVersion(int *v) { *v = 13000; return 0; }
SHOWN cudaError_t cudaDeviceGetPCIBusId(char *text, int n, int d) { strncpy(text, "0000:01:00.0", n); return 0; }
SHOWN cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *f, const void *fn) {
  memset(f, 0, sizeof *f);
  f->maxThreadsPerBlock = 1024; f->numRegs = 32; f->binaryVersion = f->ptxVersion = 90;
  f->maxDynamicSharedSizeBytes = 227 << 10;
  return 0;
}
SHOWN cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t d) {
  *n = 2; return 0;
}
SHOWN cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t d,
                                                                         unsigned g) { *n = 2; return 0; }
SHOWN const char *cudaGetErrorString(cudaError_t e) {
  return e == UNSUPPORTED ? "operation not permitted when stream is capturing" : "an error of a GPU that is none";
}
SHOWN const char *cudaGetErrorName(cudaError_t e) { return "cudaErrorPretended"; }
SHOWN void **__cudaRegisterFatBinary(void *code) { static void *some[8]; return some; }
SHOWN cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned v, unsigned long long f,
                                                   enum cudaDriverEntryPointQueryResult *status) {
  *fn = dlsym(RTLD_DEFAULT, name);
  if (status) *status = *fn ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return 0;
}

/* ---- cuBLAS: handles, and one algorithm for every product */

SHOWN int cublasCreate_v2(void **h) { *h = calloc(1, 64); return 0; }
SHOWN int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *e, void *p, int asked,
                                         void *found, int *count) { memset(found, 0, 96); *count = 1; return 0; }

/* ---- cuDNN: handles, and one engine for everything, which wants no memory of its own */

SHOWN int cudnnCreate(void **h) { *h = calloc(1, 64); return 0; }
SHOWN int cudnnBackendCreateDescriptor(int kind, void **made) { *made = calloc(1, 64); return 0; }
SHOWN int cudnnBackendGetAttribute(void *d, int name, int type, long asked, long *count, void *found) {
  enum { INT64 = 3, DESCRIPTOR = 15 };
  int is_known = type == INT64 || type == DESCRIPTOR;
  if (type == INT64 && asked && found) memset(found, 0, asked * 8);
  if (count) *count = !is_known ? 0 : asked ? asked : 1;
  return 0;
}

SHOWN int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    void *h, int m, int o, void *x, void *z, void *y, void *s, void *a, size_t *n) { *n = 512; return 0; }
SHOWN int cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    void *h, int m, int o, void *x, void *y, void *dy, void *dz, void *dx, void *s, void *a, size_t *n) {
  *n = 512; return 0;
}
SHOWN int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *h, int m, int o, void *a, void *x, size_t *n) {
  *n = 512; return 0;
}

/* ---- launches, written line by line to the file passed to `pretended_note` */

static FILE *notes;
SHOWN void pretended_note(const char *path) {
  pthread_mutex_lock(&lock);
  if (notes) fclose(notes);
  notes = path ? fopen(path, "w") : NULL;
  pthread_mutex_unlock(&lock);
}
SHOWN void pretended_called(const char *name) {
  if (notes) fprintf(notes, "library %s\n", name);
}

struct known { const void *host; const char *name; };
static struct known *known;
static size_t known_count, known_room;

SHOWN void __cudaRegisterFunction(void **code, const char *host, char *device_text, const char *name, int n, void *t,
                                  void *b, void *d, void *g, int *w) {
  if (known_count == known_room) known = realloc(known, (known_room = 2 * known_room + 4096) * sizeof *known);
  known[known_count++] = (struct known){host, name};
}
static cudaError_t started(const void *host) {
  const char *name = "?";
  bind();
  if (!notes) return 0;
  for (size_t i = 0; i < known_count; i++) if (known[i].host == host) name = known[i].name;
  fprintf(notes, "eager %s\n", name);
  return 0;
}
SHOWN cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **a, size_t n, cudaStream_t s) {
  return started(f);
}
SHOWN cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *host) { *k = (cudaKernel_t)host; return 0; }
SHOWN cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void **a, size_t n, cudaStream_t s) {
  return started(k);
}
SHOWN cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **a) { return started(f); }

/* ---- the driver: modules and functions are described by their names and their code */

struct module { const char *code; int number, context; };
struct function { char name[256]; int module, parameters, context; };
static int modules;

static int parameters_of(const char *code, const char *name) { /* how many entries .nv.info has for them */
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)code;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(code + head->e_shoff);
  const char *names = code + sections[head->e_shstrndx].sh_offset;
  int count = 0;
  for (int i = 0; i < head->e_shnum; i++) {
    const char *called = names + sections[i].sh_name;
    if (strncmp(called, ".nv.info.", 9) || strcmp(called + 9, name)) continue;
    const unsigned char *at = (const unsigned char *)code + sections[i].sh_offset, *end = at + sections[i].sh_size;
    for (; at + 4 <= end; at += at[0] == 4 ? 4 + at[2] + (at[3] << 8) : 4) count += at[0] == 4 && at[1] == 0x17;
  }
  return count;
}
static size_t bytes_of(const char *code) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)code;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(code + head->e_shoff);
  size_t end = head->e_shoff + head->e_shnum * sizeof *sections, there = head->e_phoff + head->e_phnum * head->e_phentsize;
  if (there > end) end = there;
  for (int i = 0; i < head->e_shnum; i++) {
    size_t its = sections[i].sh_type == SHT_NOBITS ? 0 : sections[i].sh_offset + sections[i].sh_size;
    if (its > end) end = its;
  }
  return end;
}
static size_t bytes_from(const void *at) { /* of what was allocated, from there to its end */
  size_t found = 0;
  pthread_mutex_lock(&lock);
  for (struct area *a = areas; a && !found; a = a->next)
    if ((char *)at >= a->begin && (char *)at < a->begin + a->bytes) found = a->begin + a->bytes - (char *)at;
  pthread_mutex_unlock(&lock);
  return found;
}

static unsigned long long launches;
SHOWN unsigned long long pretended_launches(void) { return launches; }

#undef cuModuleLoadData
SHOWN CUresult cuModuleLoadData(CUmodule *m, const void *code) {
  const char *folder = getenv("PRETEND_CODE");
  struct module *made;
  if (memcmp(code, "\177ELF", 4)) return 200;
  if (!context) return NO_CONTEXT;
  if (forbidden()) return UNSUPPORTED;
  made = calloc(1, sizeof *made);
  made->code = code; made->context = context; made->number = __sync_fetch_and_add(&modules, 1);
  if (folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d.cubin", folder, made->number);
    FILE *file = fopen(path, "wb");
    if (file) { fwrite(code, 1, bytes_of(code), file); fclose(file); }
  }
  *m = (CUmodule)made; return 0;
}
#undef cuModuleLoad
SHOWN CUresult cuModuleLoad(CUmodule *m, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return INVALID;
  fseek(file, 0, SEEK_END);
  long bytes = ftell(file);
  char *code = calloc(1, bytes + 1);
  rewind(file);
  fread(code, 1, bytes, file);
  fclose(file);
  return cuModuleLoadData(m, code);
}
SHOWN CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
  struct function *made = calloc(1, sizeof *made);
  strncpy(made->name, name, sizeof made->name - 1);
  made->module = ((struct module *)m)->number;
  made->context = ((struct module *)m)->context;
  made->parameters = parameters_of(((struct module *)m)->code, name);
  *f = (CUfunction)made; return 0;
}
SHOWN CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { return v > 227 << 10; }
SHOWN CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, CUstream s, void **given, void **extra) {
  if (!f || !x || !y || !z || bx * by * bz > 1024 || !bx || x > 2147483647u || shared > 227 << 10) return INVALID;
  if (!context) return NO_CONTEXT;
  if (((struct function *)f)->context != context) return WRONG_HANDLE;
  if (recorded && of((cudaStream_t)s)->origin != recorded) return UNSUPPORTED; /* it would not be in the recording */
  if (of((cudaStream_t)s)->recording == 2) return INVALIDATED;
  __sync_fetch_and_add(&launches, 1);
  if (notes) {
    struct function *started = (struct function *)f;
    fprintf(notes, "kernel %s %d %u %u %u", started->name, started->module, x * y * z, bx * by * bz, shared);
    for (int i = 0; i < started->parameters; i++) fprintf(notes, " %zu", bytes_from(*(void **)given[i]));
    fprintf(notes, "\n");
  }
  return 0;
}
SHOWN CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **given, void **extra) {
  return cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                        c->sharedMemBytes, c->hStream, given, extra);
}
SHOWN CUresult cuGetErrorString(CUresult e, const char **text) { *text = "an error of a GPU that is none"; return 0; }
#undef cuPointerGetAttribute
SHOWN CUresult cuPointerGetAttribute(void *found, CUpointer_attribute a, CUdeviceptr at) {
  if (a == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) *(CUdeviceptr *)found = at; /* as Inductor asks for each argument */
  return 0;
}
#undef cuDevicePrimaryCtxGetState
SHOWN CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
  *flags = 0; *active = 1; return 0;
}

/* ---- contexts: one for each GPU; a thread has one only after it asked for work or set it */

static char contexts[64];
SHOWN CUresult cuDeviceGet(CUdevice *d, int n) {
  if (n < 0 || n >= devices()) return 101;
  *d = n; return 0;
}
#undef cuDevicePrimaryCtxRetain
SHOWN CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { *c = (CUcontext)&contexts[d]; return 0; }
#undef cuCtxGetCurrent
SHOWN CUresult cuCtxGetCurrent(CUcontext *c) {
  *c = context ? (CUcontext)&contexts[context - 1] : NULL; return 0;
}
#undef cuCtxSetCurrent
SHOWN CUresult cuCtxSetCurrent(CUcontext c) {
  context = c ? (char *)c - contexts + 1 : 0;
  if (context) device = context - 1;
  return 0;
}
SHOWN int pretended_context(void) { return context; }
