import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
} from '../../src/gen/microvm/instance/v1/instance.ts'
import { memoryRegistry } from '../../src/host/instance/registry/memory-registry.ts'
import { ensureBusybox } from '../../src/image/busybox.ts'
import { ensureImage } from '../../src/image/ensure-image.ts'
import { writeCompressedCpio } from '../../src/image/formats/cpio.ts'
import { directory, fileFrom, fileOf } from '../../src/image/formats/tree.ts'
import { image, openReal } from '../../test/support/wing/real-wing.ts'
import { ADMIN, file } from '../../test/support/wing/requests.ts'
import { median, report } from '../support/figure.ts'

/**
 * The boot of a guest on a machine of a document, against one on a machine of a specification. Both have a disk, a serial port,
 * and five root ports in one slot. Specifications have no balloon, so that the document has none either.
 */
const ROUNDS = 5
/** As seeds ask for. */
const LIMIT = 1.05
/** With the words that a specification's kernel gets under emulation (src/host/qemu/qemu-arguments.ts). */
const COMMAND_LINE =
  'mitigations=off rcupdate.rcu_expedited=1 norandmaps cryptomgr.notests noreplace-smp console=ttyS0 quiet'
const INIT =
  '#!/bin/busybox sh\n/bin/busybox mount -t devtmpfs dev /dev\necho READY > /dev/ttyS0\nwhile :; do /bin/busybox sleep 1000; done\n'

const folder = makeTemporaryFolder('/tmp')
const [kernel, initrd, catalogue] = ['vmlinuz', 'initrd', 'catalogue.toml'].map((name) => join(folder, name))
if (kernel === undefined || initrd === undefined || catalogue === undefined) throw new Error('no names')
const progress = () => {}
await writeFile(kernel, readFileSync((await ensureImage({ progress })).kernel))
const busybox = await ensureBusybox(progress)
await writeCompressedCpio(initrd, [
  ...['bin', 'dev', 'proc', 'sys'].map((name) => directory(name)),
  fileFrom('bin/busybox', busybox, 0o755),
  fileOf('init', INIT, 0o755),
])
const disk = image(folder, 'disk', 8)
const entry = (table: string, path: string) => `[${table}]\npath = "${path}"\n`
const entries = [entry('volumes.disk', disk), entry('images.kernel', kernel), entry('images.initrd', initrd)]
await writeFile(catalogue, `roots = ["${folder}"]\n${entries.join('')}`, { mode: 0o600 })

const features = `{memory: {size: 192, maximum: 192}, storage: [{source: disk}], console: serial, balloon: false,
  firmware: {kernel: kernel, initrd: initrd, commandLine: "${COMMAND_LINE}"}}`
const REQUESTS = {
  plain: EnsureInstanceRequest.fromPartial({
    properties: { key: 'plain' },
    specification: {
      board: { machine: 'pc-q35-7.2', memoryMib: 192n, cpus: 1, kernel, initrd, commandLine: COMMAND_LINE },
      devices: {
        disk: { backend: 'disk-file', port: 'port0', disk: { serial: 'disk' } },
        console: { backend: 'output', serial: {} },
        ...Object.fromEntries(
          [0, 1, 2, 3, 4].map((port) => [`port${port}`, { slot: 3, rootPort: { function: port } }]),
        ),
      },
      backends: { 'disk-file': file(disk), output: { console: {} } },
    },
  }),
  features: EnsureInstanceRequest.fromPartial({
    properties: { key: 'features' },
    document: `{kind: VM, spec: {features: ${features}}}`,
  }),
}

const times = { plain: [] as number[], features: [] as number[] }
const cpu = { plain: [] as number[], features: [] as number[] }
const instances = await openReal(join(folder, 'state'), memoryRegistry(), { catalogue })
try {
  for (let round = 0; round < ROUNDS; round++)
    for (const name of ['plain', 'features'] as const) {
      const { qemuPid } = await instances.ensure(REQUESTS[name], ADMIN)
      const begin = performance.now()
      await instances.changeState({ key: name, change: Change.RUN, graceMs: 0 }, ADMIN)
      await untilReady(name)
      times[name].push(performance.now() - begin)
      cpu[name].push(cpuMs(qemuPid))
      await instances.remove(name, ADMIN)
    }
} finally {
  for (const { properties } of instances.list(ADMIN)) await instances.remove(properties?.key ?? '', ADMIN)
  await instances.close()
  removeTemporaryFolder(folder)
}
for (const [figure, { features, plain }] of [
  ['document: boot of a guest', times],
  ['document: boot of a guest, CPU time of QEMU', cpu],
] as const)
  report({ figure, unit: 'ms', value: median(features), floor: median(plain), limit: LIMIT })

async function untilReady(key: string): Promise<void> {
  const over = new AbortController()
  let text = ''
  const input = async function* () {
    await new Promise(() => {})
    yield Buffer.alloc(0)
  }
  try {
    for await (const chunk of instances.console(key, input(), { ...ADMIN, signal: over.signal })) {
      text += Buffer.from(chunk).toString()
      if (text.includes('READY')) over.abort()
    }
  } catch (error) {
    if (!over.signal.aborted) throw error
  }
}

/** What QEMU has used of CPUs, in all its threads. */
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ')
  return (Number(fields[11]) + Number(fields[12])) * 10
}
