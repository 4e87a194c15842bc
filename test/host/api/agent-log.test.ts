import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** Marks every value that may not be logged. */
const MARK = 'Zq8mark'

describe('the log', () => {
  let started: AgentProcess | AgentPod | undefined
  afterEach(() => started?.stop())

  it('has no environment, argument or data of any call at level trace, also of calls that fail', async () => {
    const pod = await startPod({ environment: { KATA_AGENT_LOG_LEVEL: 'trace' } })
    started = pod
    const { agent } = pod
    const environment = { Env: ['PATH=/bin', `SECRET=${MARK}-env`] }
    const script = `echo ${MARK}-out; echo ${MARK}-err >&2; cat; exit 3`
    await pod.create('c1', ['sh', '-c', script], { process: environment })
    await agent.startContainer({ containerId: 'c1' })
    const c1 = { containerId: 'c1', execId: '' }
    await agent.writeStdin({ ...c1, data: Buffer.from(`${MARK}-in`) })
    await agent.readStdout({ ...c1, len: 100 })
    await agent.readStderr({ ...c1, len: 100 })
    const exec = { containerId: 'c1', execId: 'e1' }
    const process = { Args: ['/bin/sh', '-c', `echo ${MARK}-exec`], Cwd: '/', Env: [`A=${MARK}-exec-env`] }
    await agent.execProcess({ ...exec, process })
    const missing = { Args: ['/none', `${MARK}-argument`], Cwd: '/', Env: [`A=${MARK}-env`] }
    await agent.execProcess({ ...exec, execId: 'e2', process: missing }).catch(() => {})
    await agent.closeStdin(c1)
    await agent.waitProcess(c1)
    await pod.remove('c1')
    await pod.create('c2', ['/none', `${MARK}-argument`], { process: environment }).catch(() => {})
    await pod.create('c3', ['true'], { process: { Env: [`${MARK}\0broken`, `B=${MARK}`] } }).catch(() => {})
    const data = Buffer.from(`${MARK}-file`)
    const path = '/run/kata-containers/shared/containers/file'
    await agent.copyFile({ path, data, fileSize: BigInt(data.length), fileMode: 0o600 })
    await agent.reseedRandomDev({ data })
    await agent.setPolicy({ policy: `# ${MARK}-policy` }).catch(() => {})
    await agent.setIPTables({ data: Buffer.from(`*${MARK}\n`) }).catch(() => {})
    expect(pod.started.log.filter((line) => line.rpc === 'grpc.AgentService/WaitProcess')).toHaveLength(1)
    expect(pod.started.log.filter((line) => JSON.stringify(line).includes(MARK))).toEqual([])
    expect(pod.started.errors()).not.toContain(MARK)
  })

  it('has what Node and libraries say as lines of its own', async () => {
    started = await startAgent({ environment: { NODE_OPTIONS: `--require ${says('')}` } })
    await started.logged({ msg: 'warning of Node', level: 'WARN', name: 'Warning', warning: 'of a module' })
    await started.logged({ msg: 'console', level: 'ERRO', text: 'from a library 1' })
    expect(started.errors()).toBe('')
  })

  it('ends with the error that ends the agent, in one line', async () => {
    const file = says('process.on("SIGURG", () => { throw new TypeError("a defect") })')
    const agent = await startAgent({ environment: { NODE_OPTIONS: `--require ${file}` } })
    started = agent
    process.kill(agent.agentPid(), 'SIGURG')
    const line = { msg: 'agent ended by an uncaught error', level: 'CRIT', error: 'a defect' }
    expect((await agent.logged(line)).stack).toContain('module.cjs')
    await expect.poll(agent.errors).toMatch(/^vminit: the agent .*: restart 1 in \d+ ms\n$/)
  })
})

function says(more: string): string {
  const file = join(temporaryFolder(), 'module.cjs')
  const say = 'process.emitWarning("of a module"); console.error("from a library %d", 1)'
  writeFileSync(file, `setTimeout(() => { ${say} }, 200); ${more}`)
  return file
}
