// Runs in a guest: limits processes by its cgroup v2, and prints what came of it as JSON. Arguments: the holder, and its folder.
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { SIGKILL } from '../../../src/base/signals.ts'
import type { HeldChild } from '../../../src/host/instance/holder/holder.ts'
import { startHolder } from '../../../src/host/instance/holder/start-holder.ts'
import { cgroupOf } from '../../../src/host/instance/machine/limits-of.ts'
import type { VmSpec } from '../../../src/host/spec/spec.ts'
import { LimitedCgroups } from '../../../src/os/cgroup/limited-cgroups.ts'

const [, , holderProgram = '', folder = ''] = process.argv
const PARENT = '/sys/fs/cgroup/microvm'
const HOG = 'Buffer.alloc(300 * 2 ** 20, 1)'
/** Its status is 7 when it may have no further process. */
const BOMB = `const { spawn } = require('node:child_process')
for (let count = 0; count < 20; count++)
  spawn(process.execPath, ['-e', 'setTimeout(() => {}, 1e6)'])
    .on('error', ({ code }) => process.exit(code === 'EAGAIN' ? 7 : 1))`
const SPEC = {
  board: { machine: 'q35', memoryMib: 64, cpus: 1, kernel: '/kernel', initrd: undefined, commandLine: '' },
  limits: { memoryMib: 160, cpuMilli: 800, tasks: 40 },
  devices: {},
  backends: {},
} satisfies VmSpec

mkdirSync(folder, { recursive: true })
const cgroups = await LimitedCgroups.find('microvm')
const told = { controllers: [...(cgroups?.controllers ?? [])].sort(), refused: refusal() }
console.log(JSON.stringify({ ...told, ...(cgroups === undefined ? {} : await limited(cgroups)) }))

/** What a limit that is wanted is refused with. */
function refusal(): string {
  try {
    cgroupOf(SPEC, { acceleration: 'tcg', cgroups: cgroups?.controllers }, folder)
    return ''
  } catch (error) {
    return String(error)
  }
}

async function limited(cgroups: LimitedCgroups) {
  const step = cgroupOf(SPEC, { acceleration: 'tcg', cgroups: cgroups.controllers }, folder)
  const name = step?.words[1] ?? ''
  await cgroups.make(name, step?.limits ?? {})
  const [cgroup = ''] = await cgroups.foldersOf(name)
  const read = (file: string) => readFileSync(join(cgroup, file), 'utf8').trim()
  const files = ['memory.max', 'memory.swap.max', 'cpu.max', 'pids.max'].filter((file) =>
    existsSync(join(cgroup, file)),
  )
  const limits = Object.fromEntries(files.map((file) => [file, read(file)]))
  const holder = await startHolder(folder, holderProgram, [cgroup])
  const start = async (child: string, script: string) => {
    const ended = Promise.withResolvers<HeldChild['exit']>()
    holder.onExit(({ name: of, exit }) => of === child && ended.resolve(exit))
    const { pid } = await holder.start({ name: child, argv: [process.execPath, '-e', script], output: 'log' })
    return { pid, ended: ended.promise }
  }
  const sleeper = await start('sleeper', 'setTimeout(() => {}, 1e6)')
  const inside = read('cgroup.procs').split('\n')
  const isInside = [holder.pid, sleeper.pid].map((pid) => inside.includes(`${pid}`))
  await holder.kill('sleeper', SIGKILL)
  await sleeper.ended
  const ends = { hog: await (await start('hog', HOG)).ended, bomb: await (await start('bomb', BOMB)).ended }
  const events = { memory: read('memory.events'), tasks: read('pids.events'), cpu: read('cpu.stat') }
  await holder.end()
  await holder.ended
  await cgroups.remove(name)
  return { limits, isInside, ends, events, left: [cgroup, PARENT].filter(existsSync) }
}
