import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { bind } from '../../support/containers/container-requests.ts'
import { type AgentPod, inNamespaceOf, startPod } from '../../support/host/agent-pod.ts'

const SHARED = '/run/kata-containers/shared/containers'
const VOLUME = '/run/kata-containers/sandbox/ephemeral/volume'

describe('calls about files of the guest', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
    mkdirSync(pod.started.inside(SHARED), { recursive: true })
  })
  afterAll(() => pod.stop())

  describe('GetDiagnosticData', () => {
    const source = `${SHARED}/last-words`
    const told = async (containerId = 'talker') =>
      (await pod.agent.getDiagnosticData({ containerId, logType: 'termination_log' })).data

    it('returns what a container wrote to its termination log, also after its end', async () => {
      writeFileSync(pod.started.inside(source), '')
      const script = 'echo "no disk left" > /dev/termination-log; exit 7'
      const Annotations = { 'io.kubernetes.container.terminationMessagePath': '/dev/termination-log' }
      const options = { mounts: [bind(source, '/dev/termination-log')], spec: { Annotations } }
      const talker = await pod.run('talker', ['sh', '-c', script], options)
      expect(await talker.wait()).toBe(7)
      expect(await told()).toBe('no disk left\n')
    })

    it('neither follows a link nor waits at a fifo in the file’s place', async () => {
      const place = pod.started.inside(source)
      rmSync(place)
      expect(await told()).toBe('')
      symlinkSync('/etc/shadow', place)
      await expect(told()).rejects.toMatchObject({ code: 'INTERNAL', message: `open ${source}: ELOOP` })
      rmSync(place)
      execFileSync('mkfifo', [place])
      await expect(told()).rejects.toMatchObject({ code: 'INTERNAL', message: `read ${source}: EINVAL` })
    })

    it('is empty for a container without such a log', async () => {
      await pod.create('silent', ['true'])
      expect(await told('silent')).toBe('')
      await expect(told('nobody')).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      const other = pod.agent.getDiagnosticData({ containerId: 'silent', logType: 'dmesg' })
      await expect(other).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    })
  })

  it('RemoveStaleVirtiofsShareMounts leaves a mount that is not stale', async () => {
    await pod.agent.removeStaleVirtiofsShareMounts({})
    mkdirSync(pod.started.inside(`${SHARED}/share`))
    inNamespaceOf(pod.started, 'mount', '-t', 'tmpfs', 'tmpfs', `${SHARED}/share`)
    await pod.agent.removeStaleVirtiofsShareMounts({})
    expect(readFileSync(`/proc/${pod.started.vminitPid}/mounts`, 'utf8')).toContain(`${SHARED}/share tmpfs`)
  })

  it('UpdateEphemeralMounts makes a volume in memory larger, and keeps what is in it', async () => {
    const volume = (options: readonly string[], driver = 'ephemeral') => ({
      ...{ driver, source: 'tmpfs', fstype: 'tmpfs', mountPoint: VOLUME },
      options: [...options],
    })
    await pod.create('owner', ['true'], { storages: [volume(['size=1m'])] })
    writeFileSync(pod.started.inside(`${VOLUME}/kept`), 'kept')
    await pod.agent.updateEphemeralMounts({ storages: [volume(['remount', 'size=3m'])] })
    const mounts = readFileSync(`/proc/${pod.started.vminitPid}/mounts`, 'utf8').split('\n')
    expect(mounts.filter((line) => line.includes(VOLUME))).toEqual([expect.stringContaining('size=3072k')])
    expect(readFileSync(pod.started.inside(`${VOLUME}/kept`), 'utf8')).toBe('kept')
    const other = pod.agent.updateEphemeralMounts({ storages: [volume(['remount'], 'blk')] })
    await expect(other).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })
})
