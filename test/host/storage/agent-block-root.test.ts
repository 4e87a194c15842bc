import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createContainerRequest } from '../../support/containers/container-requests.ts'
import {
  type AgentPod,
  inNamespaceOf,
  leftoversOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const SHARED = '/run/kata-containers/shared/containers'

describe('a container whose root is on a disk, mounted in the read-only shared folder', () => {
  let pod: AgentPod
  let folder: string
  let disk: string
  beforeAll(async () => {
    pod = await startPod()
    folder = temporaryFolder()
    execFileSync('mkfs.erofs', ['--quiet', join(folder, 'disk'), pod.root])
    const losetup = ['--find', '--show', '--read-only', join(folder, 'disk')]
    disk = execFileSync('losetup', losetup, { encoding: 'utf8' }).trim()
    // The host makes the mount points; the guest sees the folder read-only.
    mkdirSync(pod.started.inside(SHARED), { recursive: true })
    inNamespaceOf(pod.started, 'mount', '-t', 'tmpfs', 'shared', SHARED)
    mkdirSync(pod.started.inside(`${SHARED}/on-disk`))
    inNamespaceOf(pod.started, 'mount', '-o', 'remount,ro', SHARED)
  })
  afterAll(async () => {
    await pod.stop()
    execFileSync('losetup', ['--detach', disk])
  })

  it('runs, and is removed without a warning; the mount point stays the host’s', async () => {
    const mountPoint = `${SHARED}/on-disk`
    const storages = [{ driver: 'blk', source: disk, fstype: 'erofs', options: ['ro'], mountPoint }]
    await pod.agent.createContainer(createContainerRequest('on-disk', mountPoint, ['true'], { storages }))
    await pod.agent.startContainer({ containerId: 'on-disk' })
    expect(await pod.agent.waitProcess({ containerId: 'on-disk' })).toEqual({ status: 0 })
    await pod.remove('on-disk')

    const warnings = pod.started.log.filter(({ level = '' }) => ['WARN', 'ERRO', 'CRIT'].includes(level))
    expect(warnings).toEqual([])
    expect(leftoversOf(pod.started, 'on-disk')).toEqual(NOTHING_LEFT)
    expect(inNamespaceOf(pod.started, 'ls', SHARED)).toBe('on-disk\n')
  })
})
