import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { VERIFIED_VERSIONS } from '../../../src/handlers/oci-runtime/native-delete.ts'
import type { ContainerOptions } from '../../support/containers/container-requests.ts'
import {
  type AgentPod,
  cgroupsOf,
  inNamespaceOf,
  leftoversOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { hostRuntime } from '../../support/host/host-runtimes.ts'
import { endChild } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const STATE = '/run/microvm-agent/state'
const ID = 'stopped'

function noting(runtime: string, log: string, version = ''): string {
  const instead = `case $1 in --version) echo '${version}'; exit;; esac`
  return `#!/bin/sh\n${version === '' ? '' : instead}\necho "$@" >> ${log}\nexec ${runtime} "$@"\n`
}

const GROUPS = (['runc', 'crun'] as const).flatMap((kind) => [
  { kind, cgroups: 'v1', cgroupV2: false },
  { kind, cgroups: 'v2', cgroupV2: true },
])

describe.each(GROUPS)('a container of $kind that has stopped, with cgroup $cgroups', ({ kind, cgroupV2 }) => {
  let pod: AgentPod
  let folder: string
  let program: string
  beforeAll(async () => {
    folder = temporaryFolder()
    program = join(folder, kind)
    await install()
    pod = await startPod({ runtime: program, cgroupV2 })
  })
  afterAll(() => pod.stop())
  beforeEach(() => writeFileSync(join(folder, 'log'), ''))

  async function install(version?: string): Promise<void> {
    // Replaces the file, as a package manager does.
    const text = noting(await hostRuntime(kind), join(folder, 'log'), version)
    writeFileSync(`${program}.new`, text, { mode: 0o755 })
    renameSync(`${program}.new`, program)
  }

  function deletions(): number {
    return readFileSync(join(folder, 'log'), 'utf8')
      .split('\n')
      .filter((line) => / delete /.test(line)).length
  }

  const stateFolder = () => pod.started.inside(`${STATE}/${ID}`)
  const mainFile = () => join(stateFolder(), kind === 'runc' ? 'state.json' : 'status')

  async function stopped(options: ContainerOptions = {}, isStarted = true): Promise<void> {
    const init = await pod.create(ID, ['/bin/sleep', '1000'], options)
    if (isStarted) await pod.agent.startContainer({ containerId: ID })
    await pod.agent.signalProcess({ containerId: ID, execId: '', signal: SIGKILL })
    await init.wait()
  }

  function trees(): readonly string[] {
    const files = inNamespaceOf(pod.started, 'find', STATE, '-printf', '%P %y %m %n\\n')
    const cgroups = execFileSync(
      'find',
      [...cgroupsOf(pod.started.containersCgroup, pod.started), '-type', 'd'],
      {
        encoding: 'utf8',
      },
    )
    const of = (text: string) => text.trim().split('\n').toSorted()
    return [...of(files), ...of(cgroups)]
  }

  function deleteByProgram(): void {
    const general = kind === 'crun' ? ['--cgroup-manager', 'cgroupfs'] : []
    inNamespaceOf(pod.started, program, '--root', STATE, ...general, 'delete', ID)
  }

  const seccomp: ContainerOptions = {
    linux: {
      Seccomp: {
        DefaultAction: 'SCMP_ACT_ALLOW',
        Syscalls: [{ Names: ['swapon'], Action: 'SCMP_ACT_ERRNO' }],
      },
    },
  }
  const shapes: readonly (readonly [string, ContainerOptions, boolean, boolean])[] = [
    ['of the usual shape', {}, true, false],
    ['with a system call filter', seccomp, true, false],
    ['that was never started', {}, false, false],
    ['with cgroups of its own', {}, true, true],
  ]
  it.each(shapes)(
    '%s: the agent leaves what the program leaves',
    async (_shape, options, isStarted, hasBelow) => {
      const make = async () => {
        await stopped(options, isStarted)
        if (hasBelow)
          for (const cgroup of cgroupsOf(ID, pod.started)) mkdirSync(join(cgroup, 'a/b'), { recursive: true })
        return trees()
      }
      const before = await make()
      deleteByProgram()
      const after = trees()
      await pod.remove(ID)
      expect(deletions()).toBe(1)
      expect(await make()).toEqual(before)
      await pod.remove(ID)
      expect(trees()).toEqual(after)
      expect(deletions()).toBe(1)
      expect(leftoversOf(pod.started, ID)).toEqual(NOTHING_LEFT)
    },
  )

  it('is deleted by the program when that was replaced by another version meanwhile', async () => {
    await stopped()
    await install(`${kind} version 9.9.9`)
    await pod.remove(ID)
    expect(deletions()).toBe(1)
    await stopped()
    await install()
    await pod.remove(ID)
    expect(deletions()).toBe(1)
  })

  it('is left to the program while its state is that of another one', async () => {
    await stopped()
    const state = readFileSync(mainFile(), 'utf8')
    await pod.run('other', ['/bin/sleep', '1000'])
    const others = mainFile().replace(`/${ID}/`, '/other/')
    writeFileSync(mainFile(), readFileSync(others, 'utf8'))
    await expect(pod.remove(ID)).rejects.toThrow()
    expect(deletions()).toBe(1)
    expect(cgroupsOf('other', pod.started)).not.toEqual([])
    writeFileSync(mainFile(), state)
    await pod.remove(ID)
    expect(deletions()).toBe(1)
    await pod.remove('other')
    expect(leftoversOf(pod.started, ID, 'other')).toEqual(NOTHING_LEFT)
  })

  it('is left to the program while its state is cut', async () => {
    await stopped()
    const state = readFileSync(mainFile(), 'utf8')
    writeFileSync(mainFile(), state.slice(0, -20))
    const isRemoved = await pod.remove(ID).then(
      () => true,
      () => false,
    )
    expect(deletions()).toBe(1)
    // crun removes a folder that it cannot read, and leaves the cgroup.
    expect(isRemoved).toBe(kind === 'crun')
    if (isRemoved) {
      for (const cgroup of cgroupsOf(ID, pod.started)) rmdirSync(cgroup)
      return
    }
    writeFileSync(mainFile(), state)
    await pod.remove(ID)
    expect(deletions()).toBe(1)
  })

  it('with a link in its state: nothing outside is touched', async () => {
    await stopped()
    const outside = join(folder, 'outside')
    const state = readFileSync(mainFile())
    writeFileSync(outside, state)
    rmSync(mainFile())
    symlinkSync(outside, mainFile())
    await pod.remove(ID).catch(() => {})
    expect(deletions()).toBe(1)
    expect(readFileSync(outside)).toEqual(state)
    if (!existsSync(stateFolder())) return
    rmSync(mainFile())
    writeFileSync(mainFile(), state)
    await pod.remove(ID)
  })

  const mainCgroup = () => {
    const [path = ''] = cgroupsOf(ID, pod.started).filter((each) => cgroupV2 || each.includes('/freezer/'))
    return path
  }
  const freeze = () =>
    writeFileSync(join(mainCgroup(), cgroupV2 ? 'cgroup.freeze' : 'freezer.state'), cgroupV2 ? '1' : 'FROZEN')
  it.each<[string, boolean, () => void]>([
    ['when its cgroup is frozen', false, freeze],
    ['when it still runs, frozen', true, freeze],
    [
      'when it still runs, stopped',
      true,
      () => process.kill(Number(readFileSync(`${folder}/pid`)), 'SIGSTOP'),
    ],
  ])('is removed without the program %s', async (_when, isAlive, act) => {
    if (isAlive) {
      await pod.run(ID, ['/bin/sleep', '1000'])
      writeFileSync(`${folder}/pid`, readFileSync(join(mainCgroup(), 'cgroup.procs')))
    } else await stopped()
    act()
    await pod.remove(ID)
    expect(deletions()).toBe(0)
    expect(leftoversOf(pod.started, ID)).toEqual(NOTHING_LEFT)
  })

  it('whose cgroup is joined over and over is removed, or the program says why not', async () => {
    await stopped()
    const script = `while sleep 1000 & echo $! > ${mainCgroup()}/cgroup.procs; do echo joined; done 2>/dev/null; kill $!`
    const joining = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'], detached: true })
    await once(joining.stdout, 'data')
    const outcome = await pod.remove(ID).catch((error: unknown) => error)
    const isSettled = outcome === undefined || deletions() > 0
    process.kill(-(joining.pid ?? 0), 'SIGKILL')
    await endChild(joining)
    expect(isSettled).toBe(true)
    if (outcome !== undefined) await pod.remove(ID)
    const left = leftoversOf(pod.started, ID)
    expect({ ...left, cgroups: kind === 'crun' ? [] : left.cgroups }).toEqual(NOTHING_LEFT)
    // The killed `sleep`s leave it a moment later.
    for (const cgroup of left.cgroups) await vi.waitFor(() => rmdirSync(cgroup), 20_000)
  })

  it('is removed once by 20 concurrent calls', async () => {
    const ids = Array.from({ length: 20 }, (_, number) => `crowd-${number}`)
    for (const id of ids) await pod.run(id, ['/bin/sleep', '1000'])
    await Promise.all(ids.map((id) => pod.remove(id)))
    expect(leftoversOf(pod.started, ...ids)).toEqual(NOTHING_LEFT)
    expect(deletions()).toBe(0)
  })
})

describe('VERIFIED_VERSIONS', () => {
  it.each(['runc', 'crun'] as const)("names the image's %s", async (kind) => {
    const printed = execFileSync(await hostRuntime(kind), ['--version'], { encoding: 'utf8' })
    const named = VERIFIED_VERSIONS[kind].some((version) => printed.split(/\s/).includes(version))
    expect(named).toBe(true)
  })
})
