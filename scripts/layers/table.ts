/** What the files below one folder may import. */
export interface Layer {
  /** Path from the project's top; a last `*` stands for each folder there, and makes a layer of each. */
  readonly folder: string
  /** Folders or files they may import from, besides their own layer. */
  readonly imports: readonly string[]
  /** Modules of Node they may load, besides those that compute only. Types may come from any. */
  readonly node?: 'all' | readonly string[]
  /** npm packages they may import. */
  readonly packages?: readonly string[]
}

/** Modules of Node that touch nothing outside the process. */
export const PURE_NODE_MODULES = [
  'node:buffer',
  'node:crypto',
  'node:events',
  'node:path',
  'node:path/posix',
  'node:perf_hooks',
  'node:stream',
  'node:util',
]

/**
 * The direction of dependencies, as docs/architecture.md draws it: of several layers that hold a file, the longest
 * folder counts. What is in none of them may import anything.
 */
export const LAYERS: readonly Layer[] = [
  { folder: 'src/base', imports: [] },
  { folder: 'src/gen', imports: [], packages: ['@bufbuild/protobuf'] },
  { folder: 'src/oci', imports: ['src/gen', 'src/base'] },
  { folder: 'src/os', imports: ['src/base'], node: 'all' },
  { folder: 'src/hotplug', imports: ['src/os', 'src/base'] },
  {
    folder: 'src/rpc',
    imports: ['src/gen', 'src/base'],
    node: ['node:http2', 'node:net'],
    packages: ['@bufbuild/protobuf', '@grpc/grpc-js'],
  },
  {
    folder: 'src/handlers/*',
    imports: ['src/hotplug', 'src/oci', 'src/os', 'src/base', 'src/gen'],
  },
  {
    folder: 'src/handlers/device',
    imports: ['src/hotplug', 'src/oci', 'src/os', 'src/base', 'src/gen'],
    packages: ['yaml'],
  },
  // Order and undo across the handlers: the only ones that may import their siblings.
  {
    folder: 'src/handlers/cgroup',
    imports: ['src/handlers', 'src/hotplug', 'src/oci', 'src/os', 'src/base', 'src/gen'],
  },
  {
    folder: 'src/handlers/stdio',
    imports: ['src/handlers', 'src/hotplug', 'src/oci', 'src/os', 'src/base', 'src/gen'],
  },
  {
    folder: 'src/handlers/oci-runtime',
    imports: ['src/handlers', 'src/hotplug', 'src/oci', 'src/os', 'src/base', 'src/gen'],
  },
  {
    folder: 'src/handlers/process',
    imports: ['src/handlers', 'src/hotplug', 'src/oci', 'src/os', 'src/base', 'src/gen'],
  },
  {
    folder: 'src/handlers/container',
    imports: ['src/handlers', 'src/hotplug', 'src/oci', 'src/os', 'src/base', 'src/gen'],
  },
  {
    folder: 'src/handlers/sandbox',
    imports: ['src/handlers', 'src/hotplug', 'src/oci', 'src/os', 'src/base', 'src/gen'],
  },
  {
    folder: 'src/agent/config',
    imports: ['src/os', 'src/base'],
    packages: ['smol-toml'],
  },
  {
    folder: 'src/agent/boot',
    imports: ['src/agent/config', 'src/handlers/network', 'src/os', 'src/base', 'src/gen'],
  },
  {
    folder: 'src/agent/service',
    imports: ['src/agent/boot/gate.ts', 'src/rpc', 'src/handlers', 'src/os', 'src/base', 'src/gen'],
  },
  { folder: 'src/agent/transport', imports: ['src/rpc', 'src/os', 'src/base'] },
  {
    // The composition root and the entry: they see everything below.
    folder: 'src/agent',
    imports: [
      'package.json',
      'src/rpc',
      'src/handlers',
      'src/hotplug',
      'src/oci',
      'src/os',
      'src/base',
      'src/gen',
    ],
  },
  {
    // The rules for VM metadata are the guest's own.
    folder: 'src/microvm',
    imports: [
      'src/handlers/network/vm-metadata',
      'src/rpc',
      'src/gen',
      'src/base',
      'src/os',
      'src/build',
      'src/debian',
      'src/image',
    ],
    node: 'all',
    packages: ['yaml'],
  },
  // Turns the sources into programs and keeps the results.
  { folder: 'src/build', imports: ['src/base'], node: 'all', packages: ['esbuild'] },
  // Fetches Debian packages.
  { folder: 'src/debian', imports: ['src/build', 'src/base'], node: 'all' },
  // Builds the guest image, and the archive of the agent for other images.
  { folder: 'src/image', imports: ['package.json', 'src/debian', 'src/build', 'src/base'], node: 'all' },
  {
    folder: 'src/ctl',
    imports: ['src/microvm', 'src/rpc', 'src/gen', 'src/base', 'src/os'],
    node: 'all',
  },
]

/**
 * Half of the agent's start-up time and 10 MB: outside its own folder the agent may load it by `import()` only,
 * at the first HTTP/2 preface.
 */
export const LAZY_FOLDER = 'src/rpc/grpc'
/** Who must load `LAZY_FOLDER` lazily. */
export const LAZY_FOR = ['src/agent', 'src/rpc']
