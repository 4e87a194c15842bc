import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { projectRoot } from '../../../src/build/project.ts'
import {
  type AgentPod,
  cgroupFile,
  initPidOf,
  inNamespaceOf,
  startPod,
} from '../../support/host/agent-pod.ts'
import { processes, signalThose } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const DISK = '/run/kata-containers/disk'
const FOREIGN = '/run/kata-containers/foreign'
/** It ends some minutes after a test that was stopped. */
const COUNTING = ['sh', '-c', 'i=0; while [ $i -lt 6000 ]; do echo $i; i=$((i+1)); sleep 0.05; done']

let pod: AgentPod

beforeEach(async () => {
  pod = await startPod()
})
afterEach(() => pod.stop())

/** Mounts an ext4 in the agent's mount namespace. */
function mountDisk(mountPoint = DISK): void {
  const image = join(temporaryFolder(), 'disk')
  execFileSync('truncate', ['-s', '16M', image])
  execFileSync('mkfs.ext4', ['-q', image])
  inNamespaceOf(pod.started, 'mkdir', mountPoint)
  inNamespaceOf(pod.started, 'mount', '-o', 'loop', image, mountPoint)
}

const freezerOf = (id: string) => cgroupFile(pod.started, 'freezer', id, 'state').trim()

/** Fails while the disk is frozen, after a moment. */
function write(): void {
  inNamespaceOf(pod.started, 'touch', `${DISK}/${Date.now()}`)
}

async function states(): Promise<readonly string[]> {
  const { containers } = await pod.started.introspection.listContainers({})
  return containers.map(
    ({ containerId, state, frozen }) => `${containerId} ${state}${frozen ? ' frozen' : ''}`,
  )
}

describe('a pod', () => {
  it('is frozen with its disks, refuses what writes to them, and is thawed', async () => {
    const { lifecycle, introspection } = pod.started
    mountDisk()
    const counting = await pod.run('counting', COUNTING)
    await pod.run('stopped', ['sleep', '1000'])
    process.kill(initPidOf(pod.started, 'stopped'), 'SIGSTOP')
    await pod.run('paused', ['sleep', '1000'])
    await pod.agent.pauseContainer({ containerId: 'paused' })

    await expect(lifecycle.quiesce({ timeoutMs: 20_000 })).resolves.toEqual({
      containers: ['counting', 'stopped'],
      fileSystems: [DISK],
    })
    expect(['counting', 'stopped', 'paused'].map(freezerOf)).toEqual(['FROZEN', 'FROZEN', 'FROZEN'])
    expect(() => inNamespaceOf(pod.started, 'fsfreeze', '-f', DISK)).toThrow('Device or resource busy')
    expect(await states()).toEqual(['counting running frozen', 'stopped running frozen', 'paused paused'])
    const { frozen } = await introspection.getSandbox({})
    expect(frozen).toMatchObject({ containers: ['counting', 'stopped'], fileSystems: [DISK] })
    expect(frozen?.thawInMs).toBeGreaterThan(10_000n)
    for (const refused of [
      lifecycle.quiesce({}),
      pod.create('more', ['true']),
      pod.add('counting', 'e', ['true']),
      pod.agent.resumeContainer({ containerId: 'paused' }),
      pod.agent.removeContainer({ containerId: 'counting' }),
      pod.agent.resizeVolume({ volumeGuestPath: DISK, size: 32n << 20n }),
      pod.agent.copyFile({
        path: '/run/kata-containers/shared/containers/f',
        fileSize: 1n,
        data: Buffer.from('x'),
      }),
    ])
      await expect(refused).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: expect.stringMatching(/the pod is frozen/),
      })

    await expect(lifecycle.thaw({})).resolves.toEqual({ wasFrozen: true })
    write()
    expect(['counting', 'stopped', 'paused'].map(freezerOf)).toEqual(['THAWED', 'THAWED', 'FROZEN'])
    await counting.readUntil('\n')
    await expect(lifecycle.thaw({})).resolves.toEqual({ wasFrozen: false })
  })

  it('is thawed by vminit when its time is over, and before the next agent serves', async () => {
    const { lifecycle } = pod.started
    mountDisk()
    const counting = await pod.run('counting', COUNTING)
    const beganMs = performance.now()
    await lifecycle.quiesce({})
    const freezeMs = Math.ceil(performance.now() - beganMs)
    await lifecycle.thaw({})
    await lifecycle.quiesce({ timeoutMs: 1000 + 8 * freezeMs })
    await expect.poll(() => freezerOf('counting'), { timeout: 60_000 }).toBe('THAWED')
    write()
    await pod.started.logged({ msg: 'pod thawed', reason: 'bound' })

    await lifecycle.quiesce({})
    process.kill(pod.started.agentPid(), 'SIGKILL')
    await expect.poll(() => freezerOf('counting')).toBe('THAWED')
    write()
    expect(await states()).toEqual(['counting running'])
    await counting.readUntil('\n')
    await expect(lifecycle.thaw({})).resolves.toEqual({ wasFrozen: false })
  })

  it('stays frozen by no bound, however short it is', async () => {
    const ids = ['c1', 'c2', 'c3', 'c4']
    for (const id of ids) await pod.run(id, ['sleep', '1000'])
    for (let timeoutMs = 1; timeoutMs <= 20; timeoutMs++) {
      await pod.started.lifecycle.quiesce({ timeoutMs }).catch(() => {})
      await expect.poll(() => ids.map(freezerOf)).toEqual(ids.map(() => 'THAWED'))
    }
  })

  it('is thawed when the broker dies', async () => {
    mountDisk()
    await pod.run('counting', COUNTING)
    await pod.started.lifecycle.quiesce({})
    const broker = processes().find(
      ({ parent, pid }) =>
        parent === pod.started.vminitPid && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('--broker'),
    )
    const init = initPidOf(pod.started, 'counting')
    process.kill(broker?.pid ?? 0, 'SIGKILL')
    await expect.poll(() => freezerOf('counting')).toBe('THAWED')
    write()
    // A guest is off now; here the container goes on.
    signalThose([init], 'SIGKILL')
  })

  it('is thawed when it is stopped, and by DestroySandbox', async () => {
    mountDisk()
    await pod.run('counting', COUNTING)
    await pod.started.lifecycle.quiesce({})
    inNamespaceOf(pod.started, 'sh', '-c', `umount -l ${DISK}`)
    await pod.agent.destroySandbox({})
    expect(await pod.started.exited).toBe(0)
  })

  it('is not frozen with a disk that another program has frozen, which is named and stays so', async () => {
    mountDisk()
    mountDisk(FOREIGN)
    await pod.run('counting', COUNTING)
    inNamespaceOf(pod.started, 'fsfreeze', '-f', FOREIGN)
    await expect(pod.started.lifecycle.quiesce({})).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(
        /^file system .*foreign \(\/dev\/loop\d+\): frozen by another program already/,
      ),
    })
    expect(freezerOf('counting')).toBe('THAWED')
    write()
    inNamespaceOf(pod.started, 'fsfreeze', '-u', FOREIGN)
    await expect(pod.started.lifecycle.quiesce({})).resolves.toMatchObject({ fileSystems: [FOREIGN, DISK] })
    await pod.started.lifecycle.thaw({})
  })

  it('is frozen with a disk that is full, and one that has gone is no matter', async () => {
    mountDisk()
    mountDisk(FOREIGN)
    inNamespaceOf(
      pod.started,
      'sh',
      '-c',
      `cat /dev/zero > ${DISK}/full 2> /dev/null || true; sync -f ${DISK}; umount ${FOREIGN}`,
    )
    await pod.run('counting', COUNTING)
    await expect(pod.started.lifecycle.quiesce({})).resolves.toMatchObject({ fileSystems: [DISK] })
    await expect(pod.started.lifecycle.thaw({})).resolves.toEqual({ wasFrozen: true })
    inNamespaceOf(pod.started, 'rm', `${DISK}/full`)
    write()
  })
})

describe('an agent that dies at any step of a freeze', () => {
  it('leaves a pod that runs, and the next agent answers the call', async () => {
    await pod.stop()
    const folder = temporaryFolder()
    const program = join(projectRoot, 'test/support/kills/kill-at-step.ts')
    const environment = { NODE_OPTIONS: `--require ${program}`, MICROVM_KILL_STEPS: folder }
    pod = await startPod({ environment })
    mountDisk()
    await pod.run('counting', COUNTING)
    const plan = join(folder, 'plan')
    const died: string[] = []
    for (let step = 1; ; step++) {
      writeFileSync(plan, JSON.stringify({ step, victim: 0, only: 'command (27|28|29|30|31)$' }))
      await expect(pod.started.lifecycle.quiesce({})).resolves.toMatchObject({ fileSystems: [DISK] })
      await pod.started.lifecycle.thaw({})
      expect(freezerOf('counting')).toBe('THAWED')
      write()
      expect(await states()).toEqual(['counting running'])
      if (existsSync(plan)) break
      died.push(readFileSync(join(folder, 'steps'), 'utf8').trim().split('\n').at(-1) ?? '')
    }
    const steps = ['command 27', 'command 28', 'command 29', 'command 30', 'command 30', 'command 31']
    expect(died).toEqual(steps.flatMap((step) => [`before ${step}`, `after ${step}`]))
  })
})
