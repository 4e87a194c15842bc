import { existsSync, readlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { buildAgent } from '../../../src/build/agent.ts'
import { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { clientFor, type ServiceClient } from '../../../src/rpc/client.ts'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { agentCommand } from '../../support/host/agent-process.ts'
import { noPolicyAddon, policyOf } from '../../support/os/policy-addon.ts'
import { grpcConnection } from '../../support/rpc/grpc-client.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { run } from '../../support/vminit/supervised.ts'

const skipped = (await noPolicyAddon()) !== undefined

const allow = (...names: readonly string[]) => names.map((name) => `${name} := true`).join('\n')
const LIFE = allow(
  ...['SetPolicyRequest', 'CreateSandboxRequest', 'StartContainerRequest', 'WaitProcessRequest'],
  ...['RemoveContainerRequest', 'ReadStreamRequest', 'SignalProcessRequest', 'WriteStreamRequest'],
)

/** Allows each container id once in the policy's life. */
const ONCE = `${LIFE}
CreateContainerRequest := {"allowed": true, "ops": ops} if {
  not data.pstate[input.container_id]
  ops := [{"op": "add", "path": concat("/", ["/pstate", input.container_id]), "value": true}]
}
CreateContainerRequest := false if { data.pstate[input.container_id] }
`

const EXEC_OF_ECHO = `${LIFE}
CreateContainerRequest := true
default ExecProcessRequest := false
ExecProcessRequest if {
  print("exec of", input.process.Args)
  input.process.Args[0] == "/bin/echo"
}
`

describe.skipIf(skipped)('an agent with a policy', () => {
  let pod: AgentPod
  afterEach(() => pod.stop())

  const kill = () => process.kill(pod.started.agentPid(), 'SIGKILL')

  describe.each(['ttrpc', 'grpc'] as const)('over %s', (framing) => {
    let agent: ServiceClient<typeof AgentServiceDefinition>

    async function start(rules: string): Promise<void> {
      pod = await startPod({ withPolicyEngine: true })
      const connection = grpcConnection(pod.started.path)
      agent = framing === 'grpc' ? clientFor(AgentServiceDefinition, connection) : pod.agent
      await agent.setPolicy({ policy: policyOf(rules) })
    }

    it('runs what its rules allow, and says what they printed of the rest', async () => {
      await start(EXEC_OF_ECHO)
      await pod.run('c1', ['sleep', '1000'])
      const exec = (execId: string, ...Args: string[]) =>
        agent.execProcess({ containerId: 'c1', execId, process: { Args, Cwd: '/', User: {} } })
      await exec('echo', '/bin/echo', 'x')
      await expect(exec('true', '/bin/true')).rejects.toMatchObject({
        code: 'PERMISSION_DENIED',
        message: expect.stringMatching(
          /^ExecProcessRequest is blocked by policy: .*exec of \["\/bin\/true"\]$/,
        ),
      })
      await expect(agent.pauseContainer({ containerId: 'c1' })).rejects.toMatchObject({
        code: 'INTERNAL',
        message: expect.stringMatching(/^PauseContainerRequest: internal error: /),
      })
      expect(pod.started.log.filter(({ level }) => level !== 'DEBG').join('')).not.toContain('/bin/true')
    })

    it('keeps a state that decides later calls, also of 50 at once', async () => {
      await start(ONCE)
      const create = () => pod.create('one', ['sleep', '1000']).catch((error) => error)
      const outcomes = await Promise.all(Array.from({ length: 50 }, create))
      expect(outcomes.filter(({ code }) => code === 'PERMISSION_DENIED')).toHaveLength(49)
      await pod.remove('one')
      await expect(pod.create('one', ['sleep', '1000'])).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
      await pod.create('two', ['sleep', '1000'])
    })
  })

  it('reads and throws away the output that may not be read, so that its process ends', async () => {
    pod = await startPod({ withPolicyEngine: true })
    const rules = LIFE.replace('ReadStreamRequest := true', 'ReadStreamRequest := false')
    await pod.agent.setPolicy({ policy: policyOf(`${rules}\nCreateContainerRequest := true`) })
    const init = await pod.run('loud', ['dd', 'if=/dev/zero', 'bs=1024', 'count=1000'])
    const reading = (async () => {
      for (;;) expect(await init.read()).toHaveLength(0)
    })().catch((error) => error)
    // The process cannot end before a megabyte was read from its pipe.
    expect(await init.wait()).toBe(0)
    expect(await reading).toMatchObject({ code: 'NOT_FOUND' })
  })

  it('shows its rules the data of a long write, which is in a file', async () => {
    pod = await startPod({ withPolicyEngine: true })
    const rules = LIFE.replace('WriteStreamRequest := true', 'default WriteStreamRequest := false')
    const isLong = 'WriteStreamRequest if { count(input.data) == 100000; input.data[99999] == 121 }'
    await pod.agent.setPolicy({ policy: policyOf(`${rules}\n${isLong}\nCreateContainerRequest := true`) })
    const init = await pod.run('reader', ['sh', '-c', 'head -c 100000 | wc -c'])
    const denied = { code: 'PERMISSION_DENIED' }
    await expect(init.write(Buffer.alloc(100_000, 'x'))).rejects.toMatchObject(denied)
    await expect(init.write(Buffer.alloc(99_999, 'y'))).rejects.toMatchObject(denied)
    await init.write(Buffer.alloc(100_000, 'y'))
    expect(await init.readUntil('\n')).toBe('100000\n')
  })

  it('shows its rules the target of a link that is copied, also a long one, which is in a file', async () => {
    pod = await startPod({ withPolicyEngine: true })
    const rules = 'default CopyFileRequest := false\nCopyFileRequest if endswith(input.symlink_target, "y")'
    await pod.agent.setPolicy({ policy: policyOf(`${LIFE}\n${rules}`) })
    const path = '/run/kata-containers/shared/containers/link'
    const copy = (target: string) =>
      pod.agent.copyFile({ path, fileMode: 0o120_777, dirMode: 0o755, data: Buffer.from(target) })
    const long = 'x'.repeat(99_999)
    await expect(copy(`${long}x`)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    const refused = { code: 'INVALID_ARGUMENT', message: expect.stringContaining('a target of 100000 bytes') }
    await expect(copy(`${long}y`)).rejects.toMatchObject(refused)
    await copy('any')
    expect(readlinkSync(pod.started.inside(path))).toBe('any')
  })

  it('refuses a rule that never ends, and continues with the next call', async () => {
    pod = await startPod({ withPolicyEngine: true })
    const some = (name: string) => `some ${name} in numbers.range(1, 5000)`
    const endless = `CreateContainerRequest if { ${some('i')}; ${some('j')}; ${some('k')}; i * j * k == -1 }`
    await pod.agent.setPolicy({ policy: policyOf(`${LIFE}\n${endless}`) })
    await expect(pod.create('c1', ['true'])).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(/^CreateContainerRequest: internal error: /),
    })
    await pod.agent.setPolicy({ policy: policyOf('CreateContainerRequest := true') })
  })

  it('takes a policy of almost 4 MiB, with a line of a megabyte', async () => {
    pod = await startPod({ withPolicyEngine: true })
    const lines = Array.from({ length: 45_000 }, (_, line) => `x${line} := "${'y'.repeat(50)}"`).join('\n')
    const policy = policyOf(`${LIFE}\nlong := "${'z'.repeat(1024 * 1024)}"\n${lines}`)
    expect(policy.length).toBeGreaterThan(3.5 * 1024 * 1024)
    await pod.agent.setPolicy({ policy })
    await pod.agent.setPolicy({ policy })
  })

  it('keeps a policy that a call has set, or ends vminit when the policy cannot be restored', async () => {
    pod = await startPod({ withPolicyEngine: true })
    await pod.agent.setPolicy({ policy: policyOf(LIFE) })
    kill()
    await expect(pod.agent.pauseContainer({ containerId: 'c1' })).rejects.toMatchObject({
      message: expect.stringMatching(/^PauseContainerRequest: internal error/),
    })
    writeFileSync(pod.started.inside('/run/microvm-agent/saved/policy'), 'damaged')
    kill()
    expect(await pod.started.exited).toBe(3)
  })

  it('keeps a policy of a file, with its state', async () => {
    const file = join(temporaryFolder(), 'policy.rego')
    writeFileSync(file, policyOf(ONCE))
    pod = await startPod({ withPolicyEngine: true, environment: { KATA_AGENT_POLICY_FILE: file } })
    kill()
    await pod.started.logged({ msg: 'listening' }, 2)
    const { agent } = pod
    await expect(agent.pauseContainer({ containerId: 'c1' })).rejects.toMatchObject({
      message: expect.stringMatching(/^PauseContainerRequest: internal error/),
    })
    // The call fails after its check, which has changed the state.
    await expect(agent.createContainer({ containerId: 'x', OCI: {} })).rejects.toMatchObject({
      message: expect.not.stringContaining('Request'),
    })
    kill()
    await expect(agent.createContainer({ containerId: 'x', OCI: {} })).rejects.toMatchObject({
      message: expect.stringContaining('CreateContainerRequest'),
    })
  })

  it('answers no call of a service outside the contract', async () => {
    pod = await startPod({ withPolicyEngine: true })
    await pod.agent.setPolicy({ policy: policyOf(LIFE) })
    const connection = grpcConnection(pod.started.path)
    await expect(clientFor(IntrospectionDefinition, connection).getVersion({})).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
    })
    connection.close()
  })
})

describe('an agent without an engine for policies', () => {
  it.each([
    {
      what: 'there is a policy',
      file: 'policy.rego',
      reason: 'this image has no policy engine, want one of npm run image',
    },
    { what: 'its setting names a missing file', file: 'missing.rego', reason: 'does not exist' },
  ])('does not start when $what, and says so in one sentence', async ({ file, reason }) => {
    const folder = temporaryFolder()
    const path = join(folder, file)
    writeFileSync(join(folder, 'policy.rego'), policyOf(''))
    const built = await buildAgent()
    const socket = join(folder, 'agent.sock')
    const agent = agentCommand(built, ['--server-addr', `unix://${socket}`])
    const outcome = await run(['env', `KATA_AGENT_POLICY_FILE=${path}`, ...agent])
    expect(outcome).toMatchObject({ status: 2, stderr: `agent: policy file ${path}: ${reason}\n` })
    expect(existsSync(socket)).toBe(false)
  })
})
