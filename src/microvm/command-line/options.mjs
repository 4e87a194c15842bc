import { SHELLS } from '../../client/completion.mjs'
import { MACHINE_COMMANDS } from './commands.mjs'

/** The options of `./microvm run`, as `parseArgs` of node:util takes them. Plain JavaScript, as all of this folder. */
export const OPTIONS = /** @type {const} */ ({
  help: { type: 'boolean', short: 'h' },
  interactive: { type: 'boolean', short: 'i', default: false },
  tty: { type: 'boolean', short: 't', default: false },
  rootfs: { type: 'string' },
  env: { type: 'string', short: 'e', multiple: true },
  workdir: { type: 'string', short: 'w' },
  user: { type: 'string', short: 'u' },
  name: { type: 'string' },
  daemon: { type: 'boolean', default: false },
  warm: { type: 'boolean', default: false },
  socket: { type: 'string' },
  memory: { type: 'string' },
  cpus: { type: 'string', default: '2' },
  machine: { type: 'string', default: 'q35' },
  kernel: { type: 'string', default: 'trixie' },
  form: { type: 'string', default: 'disk' },
  image: { type: 'string' },
  'root-device': { type: 'string', default: 'virtio-blk' },
  console: { type: 'string', default: 'serial' },
  metadata: { type: 'string' },
  append: { type: 'string', multiple: true },
  timings: { type: 'boolean', default: false },
  json: { type: 'boolean', default: false },
  verbose: { type: 'boolean', default: false },
})

/** The values of the options that have a choice; `--kernel` also takes the path of a file. */
export const CHOICES = /** @type {const} */ ({
  machine: ['q35', 'pc', 'microvm'],
  kernel: ['trixie', 'bookworm'],
  form: ['disk', 'partitioned', 'initrd'],
  'root-device': ['virtio-blk', 'nvdimm'],
  console: ['serial', 'virtio'],
})

/**
 * The memory of a guest in MiB, by the form of its root: what it has by default, and the least that a container was run with
 * (docs/boot.md).
 */
export const MEMORY_MIB = /** @type {const} */ ({
  disk: { byDefault: 512, least: 128 },
  partitioned: { byDefault: 512, least: 128 },
  initrd: { byDefault: 1024, least: 448 },
})

/** The options whose value is a path. */
const PATHS = ['rootfs', 'image', 'metadata', 'kernel', 'socket']

/**
 * The tool as completions describe it.
 * @type {import('../../client/completion.mjs').Tool}
 */
export const MICROVM = {
  name: 'microvm',
  globals: [{ name: 'help', short: 'h' }, { name: 'version' }],
  commands: [
    {
      name: 'run',
      summary: 'run a container in a microVM',
      options: Object.entries(OPTIONS).map(([name, option]) => ({
        name,
        ...('short' in option && { short: option.short }),
        ...(option.type === 'string' && { value: 'VALUE' }),
        ...(PATHS.includes(name) && { completes: 'file' }),
        ...Object.entries(CHOICES).flatMap(([of, choices]) => (of === name ? [{ choices }] : []))[0],
      })),
      arguments: [{ verbatim: true }],
    },
    ...MACHINE_COMMANDS,
    { name: 'completion', summary: 'print the completion of a shell', arguments: [{ choices: SHELLS }] },
    { name: 'help', summary: 'show the help' },
  ],
  calls: [],
  goesOnWithFiles: true,
}
