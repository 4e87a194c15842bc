import { readdirSync, statfsSync, writeFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { bind } from '../../support/containers/container-requests.ts'
import { type AgentPod, inNamespaceOf, startPod } from '../../support/host/agent-pod.ts'

const FOLDER = '/run/microvm-agent/saved'

describe("the agent's state", () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  it('is in a file system of its own, for the agent alone', () => {
    const mount = inNamespaceOf(pod.started, 'findmnt', '-no', 'FSTYPE,OPTIONS', FOLDER)
    expect(mount).toMatch(/^tmpfs +rw,nosuid,nodev,noexec,.*size=98304k,nr_inodes=65536,mode=700\n$/)
  })

  it('is unreachable for containers, even those that share folders with the agent', async () => {
    const options = {
      mounts: [bind('/run/kata-containers', '/shared'), bind('/dev', '/guest-dev')],
      capabilities: ['CAP_SYS_ADMIN', 'CAP_SYS_CHROOT', 'CAP_DAC_OVERRIDE', 'CAP_SYS_PTRACE'],
    }
    const devices = 'cut -d " " -f 3 /proc/self/mountinfo; ls -A /run/microvm-agent 2>&1 || :'
    const seen = await pod.output('looks', devices, options)
    const [own = ''] =
      /^\d+:\d+/.exec(inNamespaceOf(pod.started, 'findmnt', '-no', 'MAJ:MIN', FOLDER).trim()) ?? []
    expect(own).not.toBe('')
    expect(seen.split('\n')).not.toContain(own)
    expect(seen).toContain('No such file or directory')
  })

  it.each([
    ['of bytes', fillBytes],
    ['of files', fillFiles],
  ] as const)('full %s, refuses what is new and keeps what was begun', async (_what, fill) => {
    const init = await pod.run('begun', ['sh', '-c', 'read line; exit 5'])
    const added = await pod.add('begun', 'e', ['sh', '-c', 'read line; exit 6'])
    const inside = pod.started.inside(FOLDER)
    const empty = fill(inside)
    await expect(pod.create('late', ['true'])).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: expect.stringMatching(
        /^state containers\/late\/record: \d+ bytes and \d+ files of room, want /,
      ),
    })
    await expect(pod.add('begun', 'late', ['true'])).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    await added.write('end\n')
    expect(await added.wait()).toBe(6)
    process.kill(pod.started.agentPid(), 'SIGKILL')
    await init.write('end\n')
    expect(await init.wait()).toBe(5)
    await pod.remove('begun')
    await expect.poll(() => readdirSync(`${inside}/requests`)).toEqual([])
    empty()
    await pod.output('again', 'true')
  })

  /** Leaves less than the reserve. Returns a function that restores it. */
  function fillBytes(inside: string): () => void {
    writeFileSync(`${inside}/filler`, Buffer.alloc(80 * 1024 * 1024))
    return () => inNamespaceOf(pod.started, 'rm', `${FOLDER}/filler`)
  }

  /** The same for files: the file system allows only a few more. */
  function fillFiles(inside: string): () => void {
    const { files, ffree } = statfsSync(inside)
    const allow = (inodes: number) =>
      inNamespaceOf(pod.started, 'mount', '-o', `remount,nr_inodes=${inodes}`, FOLDER)
    allow(files - ffree + 16)
    return () => allow(files)
  }
})
