import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { cuttingProxy } from '../../support/ctl/cutting-proxy.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe.each(['ttrpc', 'grpc'])('agent-ctl that does not dial again, over %s', (protocol) => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
    await pod.run('web', ['sleep', '1000'])
  })
  afterAll(() => pod.stop())

  const LOST = 'the agent closed the connection before its answer; its log tells why'

  /** Runs agent-ctl through a proxy, which ends the connection after this many bytes of a side. */
  async function cut(limits: Parameters<typeof cuttingProxy>[1], ...words: readonly string[]) {
    const proxy = await cuttingProxy(pod.started.path, limits)
    const run = await ctl(['-a', proxy.address, '--reconnect', '0', '--protocol', protocol, ...words])
    proxy.close()
    return run
  }

  it('says so for a call that waits', async () => {
    const proxy = await cuttingProxy(pod.started.path)
    const waiting = ctl(['-a', proxy.address, '--protocol', protocol, 'GetOOMEvent'])
    const direct = ['-a', `unix://${pod.started.path}`]
    while (!(await ctl([...direct, 'calls'])).stdout.includes('GetOOMEvent'));
    proxy.close()
    expect(await waiting).toEqual({ status: 125, stdout: '', stderr: `agent-ctl: GetOOMEvent: ${LOST}\n` })
  })

  it('says so while a program writes', async () => {
    const words = ['exec', 'web', 'sh', '-c', 'yes | head -c 3000000']
    const { status, stderr } = await cut({ fromAgent: 500_000 }, ...words)
    expect([status, stderr]).toEqual([125, `agent-ctl: the process: ${LOST}\n`])
  })

  it('says so while a tree is copied, into a container, out of it, and into the guest', async () => {
    const lostAt = (what: string, target: string) =>
      `agent-ctl: ${what}: ${LOST}; ${target} may be incomplete\n`
    const folder = temporaryFolder()
    const file = join(folder, 'large')
    writeFileSync(file, Buffer.alloc(3 << 20, 'x'))
    const into = await cut({ fromClient: 1 << 20 }, 'cp', file, 'web:/tmp')
    expect(into).toEqual({ status: 125, stdout: '', stderr: lostAt('cp', 'web:/tmp/large') })
    const listed = () => ctl(['-a', `unix://${pod.started.path}`, 'ps', 'web'])
    await expect.poll(async () => (await listed()).stdout).not.toContain('tar')
    const large = await pod.add('web', 'large', ['sh', '-c', 'yes | head -c 3000000 >/tmp/yes'])
    expect(await large.wait()).toBe(0)
    const outOf = await cut({ fromAgent: 1 << 20 }, 'cp', 'web:/tmp/yes', folder)
    expect(outOf).toEqual({ status: 125, stdout: '', stderr: lostAt('cp', join(folder, 'yes')) })
    const target = '/run/kata-containers/shared/containers/cut'
    const guest = await cut({ fromClient: 1 << 20 }, 'cp', '--guest', file, target)
    expect(guest).toEqual({ status: 125, stdout: '', stderr: lostAt('CopyFile', target) })
  })
})
