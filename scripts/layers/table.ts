export interface Layer {
  /** The path of a folder or file; a last `*` makes a layer of each folder there. */
  readonly folder: string
  readonly imports: readonly string[]
  /** Modules of Node that the layer may load besides {@link PURE_NODE_MODULES}. Type imports are free. */
  readonly node?: 'all' | readonly string[]
  readonly packages?: readonly string[]
}

/** Modules of Node that change nothing outside the process. */
export const PURE_NODE_MODULES = [
  'node:async_hooks',
  'node:buffer',
  'node:crypto',
  'node:events',
  'node:path',
  'node:path/posix',
  'node:perf_hooks',
  'node:stream',
  'node:util',
  'node:zlib',
]

/**
 * The allowed imports of the repository. A file belongs to the layer with the longest folder that contains it. A code
 * file without a layer is a fault, and so is a path that does not exist.
 */
export const LAYERS: readonly Layer[] = [
  { folder: 'src/base', imports: [] },
  { folder: 'src/gen', imports: [], packages: ['@bufbuild/protobuf'] },
  { folder: 'src/oci', imports: ['src/gen', 'src/base'] },
  { folder: 'src/os', imports: ['src/base'], node: 'all' },
  { folder: 'src/state', imports: ['src/os', 'src/gen', 'src/base'] },
  { folder: 'src/hotplug', imports: ['src/os', 'src/base'] },
  { folder: 'src/settings', imports: ['src/base'] },
  {
    folder: 'src/rpc',
    imports: ['src/gen', 'src/base'],
    node: ['node:http2', 'node:net'],
    packages: ['@bufbuild/protobuf', '@grpc/grpc-js'],
  },
  { folder: 'src/rpc/tracing', imports: ['src/rpc', 'src/base'], node: ['node:http'] },
  {
    folder: 'src/handlers/*',
    imports: ['src/hotplug', 'src/oci', 'src/state', 'src/os', 'src/base', 'src/gen'],
  },
  {
    folder: 'src/handlers/device',
    imports: ['src/hotplug', 'src/oci', 'src/state', 'src/os', 'src/base', 'src/gen'],
    packages: ['yaml'],
  },
  {
    folder: 'src/handlers/process',
    imports: [
      'src/handlers/cgroup',
      'src/handlers/stdio',
      'src/handlers/oci-runtime',
      'src/hotplug',
      'src/oci',
      'src/state',
      'src/os',
      'src/base',
      'src/gen',
    ],
  },
  {
    folder: 'src/handlers/container',
    imports: [
      'src/handlers/cgroup',
      'src/handlers/stdio',
      'src/handlers/oci-runtime',
      'src/handlers/process',
      'src/handlers/storage',
      'src/handlers/device',
      'src/hotplug',
      'src/oci',
      'src/state',
      'src/os',
      'src/base',
      'src/gen',
    ],
  },
  {
    folder: 'src/handlers/quiesce',
    imports: [
      'src/handlers/cgroup',
      'src/handlers/container',
      'src/hotplug',
      'src/oci',
      'src/state',
      'src/os',
      'src/base',
      'src/gen',
    ],
  },
  {
    folder: 'src/handlers/sandbox',
    imports: ['src/handlers', 'src/hotplug', 'src/oci', 'src/state', 'src/os', 'src/base', 'src/gen'],
  },
  {
    folder: 'src/agent/config',
    imports: ['src/settings', 'src/os', 'src/base'],
    packages: ['smol-toml'],
  },
  {
    folder: 'src/agent/boot',
    imports: [
      'src/agent/config',
      'src/settings',
      'src/handlers/cgroup',
      'src/handlers/network',
      'src/os',
      'src/base',
      'src/gen',
    ],
  },
  {
    folder: 'src/agent/lifecycle',
    imports: ['src/handlers/network', 'src/handlers/sandbox', 'src/state', 'src/os', 'src/base', 'src/gen'],
  },
  { folder: 'src/agent/policy', imports: ['src/state', 'src/os', 'src/base', 'src/gen'] },
  {
    folder: 'src/agent/introspection',
    imports: ['src/handlers', 'src/hotplug', 'src/oci', 'src/state', 'src/os', 'src/base', 'src/gen'],
    node: ['node:inspector/promises'],
  },
  { folder: 'src/agent/tracing', imports: ['src/rpc', 'src/os', 'src/base'] },
  { folder: 'src/agent/tracing/tracer.ts', imports: ['src/rpc', 'src/base'] },
  {
    folder: 'src/agent/tracing/tracing-if-on.ts',
    imports: ['src/agent/tracing', 'src/settings', 'src/handlers/stdio', 'src/rpc', 'src/os', 'src/base'],
  },
  {
    folder: 'src/agent/service',
    imports: [
      'src/agent/boot/gate.ts',
      'src/agent/introspection',
      'src/agent/lifecycle',
      'src/agent/policy',
      'src/agent/tracing/tracer.ts',
      'src/rpc',
      'src/handlers',
      'src/state',
      'src/os',
      'src/base',
      'src/gen',
    ],
  },
  { folder: 'src/agent/console', imports: ['src/agent/host-listener.ts', 'src/os', 'src/base'] },
  { folder: 'src/agent/log', imports: ['src/agent/host-listener.ts', 'src/os', 'src/base'] },
  { folder: 'src/agent/transport', imports: ['src/rpc', 'src/os', 'src/base'] },
  {
    folder: 'src/agent',
    imports: [
      'package.json',
      'src/settings',
      'src/rpc',
      'src/handlers',
      'src/hotplug',
      'src/oci',
      'src/state',
      'src/os',
      'src/base',
      'src/gen',
    ],
  },
  // The host's side: no layer of the agent imports it.
  {
    folder: 'src/build',
    imports: ['src/os/files/mountinfo.ts', 'src/rpc', 'src/gen', 'src/base'],
    node: 'all',
    packages: ['@bufbuild/protobuf', 'esbuild'],
  },
  { folder: 'src/debian', imports: ['src/build', 'src/base'], node: 'all' },
  {
    folder: 'src/image',
    imports: ['package.json', 'src/oci/runtime-advisories.ts', 'src/debian', 'src/build', 'src/base'],
    node: 'all',
    packages: ['@cyclonedx/cyclonedx-library'],
  },
  {
    folder: 'src/client',
    imports: ['src/rpc', 'src/os', 'src/gen', 'src/base'],
    node: 'all',
    packages: ['@bufbuild/protobuf'],
  },
  {
    folder: 'src/ctl',
    imports: ['package.json', 'src/client', 'src/rpc', 'src/gen', 'src/base'],
    node: 'all',
    packages: ['@bufbuild/protobuf'],
  },
  // The host wing, from the bottom to the top.
  { folder: 'src/host/spec', imports: ['src/gen', 'src/base'], packages: ['@bufbuild/protobuf'] },
  { folder: 'src/host/root-disk', imports: ['src/host/spec', 'src/os', 'src/base'], node: 'all' },
  {
    folder: 'src/host/machine',
    imports: ['src/host/spec', 'src/base'],
    node: ['node:module'],
    packages: ['yaml'],
  },
  {
    folder: 'src/host/catalogue',
    imports: ['src/host/spec', 'src/host/machine', 'src/base'],
    node: ['node:fs', 'node:fs/promises'],
    packages: ['smol-toml'],
  },
  {
    folder: 'src/host/qemu',
    imports: [
      'src/host/spec',
      'src/host/machine',
      'src/client',
      'src/rpc',
      'src/gen',
      'src/base',
      'src/os',
      'src/build',
      'src/debian',
    ],
    node: 'all',
  },
  {
    folder: 'src/host/tls',
    imports: ['src/client/connection', 'src/rpc', 'src/base'],
    node: 'all',
  },
  {
    folder: 'src/host/controller',
    imports: [
      ...['src/host/tls', 'src/host/qemu/qemu-versions.ts', 'src/client/connection'],
      ...['src/rpc', 'src/gen', 'src/base'],
    ],
    node: 'all',
  },
  { folder: 'src/host/secrets', imports: ['src/host/spec', 'src/gen', 'src/base'], node: 'all' },
  {
    folder: 'src/host/instance',
    imports: [
      ...[
        'src/host/secrets',
        'src/host/qemu',
        'src/host/catalogue',
        'src/host/machine',
        'src/host/spec',
        'src/client',
        'src/rpc',
        'src/gen',
        'src/base',
        'src/os',
      ],
      'src/build',
    ],
    node: 'all',
    packages: ['@bufbuild/protobuf'],
  },
  {
    folder: 'src/host/migration/payloads',
    imports: ['src/rpc', 'src/gen', 'src/base'],
    packages: ['@bufbuild/protobuf'],
  },
  {
    folder: 'src/host/migration',
    imports: [
      ...['src/host/instance', 'src/host/qemu', 'src/host/spec', 'src/host/tls'],
      'src/host/controller/client.ts',
      ...['src/client', 'src/rpc', 'src/gen', 'src/base', 'src/os', 'src/build'],
    ],
    node: 'all',
    packages: ['@bufbuild/protobuf'],
  },
  {
    folder: 'src/host/service',
    imports: [
      'package.json',
      ...[
        'src/host/migration',
        'src/host/instance',
        'src/host/secrets',
        'src/host/catalogue',
        'src/host/root-disk',
        'src/host/machine',
        'src/host/spec',
        'src/host/tls',
        'src/host/controller/client.ts',
        'src/host/controller/hypervisor-id.ts',
      ],
      ...['src/client/connection', 'src/rpc', 'src/gen', 'src/base', 'src/os'],
    ],
    node: 'all',
    packages: ['@bufbuild/protobuf', '@grpc/grpc-js', 'smol-toml'],
  },
  {
    folder: 'src/microvm',
    imports: [
      'package.json',
      'src/host',
      'src/settings',
      'src/client',
      'src/rpc',
      'src/gen',
      'src/base',
      'src/os',
      'src/build',
      'src/debian',
      'src/image',
    ],
    node: 'all',
    packages: ['smol-toml', 'yaml'],
  },
  // These files run on Node 20 before the npm packages are installed, so they import only each other.
  { folder: 'src/base/suggest.mjs', imports: [] },
  { folder: 'src/client/machines/machine-name.mjs', imports: [] },
  { folder: 'src/build/node-flags.mjs', imports: [] },
  { folder: 'src/client/completion.mjs', imports: [] },
  { folder: 'src/client/daemon/daemon-socket.mjs', imports: [], node: ['node:os'] },
  {
    folder: 'src/microvm/command-line',
    imports: ['src/base/suggest.mjs', 'src/client/machines/machine-name.mjs', 'src/client/completion.mjs'],
    node: 'all',
  },
  { folder: 'src/microvm/doctor', imports: [], node: 'all' },
  {
    folder: 'scripts/setup',
    imports: [
      ...['src/microvm/command-line', 'src/microvm/doctor'],
      ...['src/client/daemon/daemon-socket.mjs', 'src/build/node-flags.mjs'],
    ],
    node: 'all',
  },
  { folder: 'scripts/setup.mjs', imports: ['scripts/setup'], node: 'all' },
  { folder: 'scripts/microvm.mjs', imports: ['scripts/setup'], node: 'all' },
  { folder: 'scripts/agent-ctl.mjs', imports: ['scripts/setup'], node: 'all' },
  {
    folder: 'scripts',
    imports: [
      ...['src/image', 'src/build', 'src/client', 'src/ctl', 'src/gen', 'src/base'],
      ...[
        'src/handlers/container/recovery-table.ts',
        'src/handlers/guest/metrics/table.ts',
        'src/host/machine',
        'src/oci/check',
        'src/oci/normalize-spec.ts',
        'src/oci/runtime-advisories.ts',
        'src/oci/runtime-config.ts',
        'src/rpc/limits.ts',
        'src/settings',
        'bench/growth-page.ts',
        'bench/kept.ts',
        'src/agent/service',
        'test/support/agent/service-dependencies.ts',
      ],
    ],
    node: 'all',
    packages: ['vitest'],
  },
  {
    folder: 'test',
    imports: ['package.json', 'scripts', 'src', 'bench/compare.ts', 'bench/growth-page.ts', 'bench/kept.ts'],
    node: 'all',
    packages: [
      '@bufbuild/protobuf',
      '@cyclonedx/cyclonedx-library',
      '@grpc/grpc-js',
      '@lydell/node-pty',
      'ajv',
      'esbuild',
      'fast-check',
      'smol-toml',
      'vitest',
      'yaml',
    ],
  },
  { folder: 'bench', imports: ['test/support', 'src'], node: 'all', packages: ['@grpc/grpc-js'] },
  { folder: 'vitest.config.ts', imports: [], packages: ['vitest'] },
]

/**
 * The gRPC stack takes half of the agent's start-up time and 10 MB. Other folders of the agent may load it only by
 * `import()`, at the first HTTP/2 preface.
 */
export const LAZY_FOLDER = 'src/rpc/grpc'
export const LAZY_FOR = ['src/agent', 'src/rpc']
