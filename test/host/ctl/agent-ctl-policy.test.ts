import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildAgentCtl, CTL_INSTALLED } from '../../../src/build/agent-ctl.ts'
import { pinnedNode } from '../../../src/build/project.ts'
import { type CtlRun, ctl } from '../../support/ctl/run-ctl.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { noPolicyAddon, policyAddonFolder } from '../../support/os/policy-addon.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { Terminal } from '../../support/terminal.ts'

const skipped = (await noPolicyAddon()) !== undefined

function policyFile(text: string | Buffer): string {
  const file = join(temporaryFolder(), 'policy.rego')
  writeFileSync(file, text)
  return file
}

describe.skipIf(skipped)('agent-ctl policy check', () => {
  let engine: string
  beforeAll(async () => {
    engine = await policyAddonFolder()
  })

  const check = (file: string, ...words: readonly string[]) =>
    ctl([...words, 'policy', 'check', '--engine', engine, file])

  it.each([
    ['a line that cannot be parsed', 'package agent_policy\n\nbar {', ':3:5: `if` keyword is required'],
    ['a variable that is not there', 'package agent_policy\nA if {\n x == 1\n}\n', ':3:2: use of undefined'],
    [
      'a function that is not there',
      'package agent_policy\nSetPolicyRequest if { nofn(1) }\n',
      ':2:27: SetPolicyRequest: could not find function nofn',
    ],
    ['another package', '# rules\npackage policy\nA := true\n', ': package policy: an agent asks for rules'],
    ['nothing', ' \n', ': empty, want a policy in Rego'],
    ['bytes that are no text', Buffer.from([0xff, 0xfe]), ': not UTF-8'],
  ])('reports an error with its place: %s', async (_name, text, error) => {
    const file = policyFile(text)
    const { status, stderr, stdout } = await check(file)
    expect({ status, stderr }).toEqual({ status: 1, stderr: '' })
    expect(stdout.slice(0, file.length + error.length)).toBe(`${file}${error}`)
  })

  it('warns of rules that have no value, and of a policy that refuses nothing', async () => {
    const file = policyFile(
      'package agent_policy\ndefault AllowRequestsFailingPolicy := true\ndefault SetPolicyRequest := false\n',
    )
    const { status, stdout } = await check(file, '-o', 'json')
    expect(status).toBe(0)
    const { errors, warnings } = JSON.parse(stdout)
    expect(errors).toEqual([])
    expect(warnings).toEqual([
      expect.stringMatching(/^no value for an empty request, .*: CreateContainerRequest, /),
      'AllowRequestsFailingPolicy is true: calls pass that the policy refuses',
    ])
    expect(warnings[0]).not.toContain('SetPolicyRequest')
    expect((await check(file)).stdout).toMatch(/: no errors\n$/)
  })

  it('says what is missing', async () => {
    const empty = temporaryFolder()
    const words = ['policy', 'check', '--engine', empty, policyFile('package agent_policy\n')]
    expect(await ctl(words)).toMatchObject({
      status: 125,
      stderr: `agent-ctl: policy check: policy.node: not found, want it in ${empty}; npm run dist builds it into dist/\n`,
    })
    expect(await check('/nonexistent')).toMatchObject({ status: 2 })
  })
})

describe.skipIf(skipped)('agent-ctl policy set', () => {
  let started: AgentProcess
  beforeAll(async () => {
    started = await startAgent({ withPolicyEngine: true })
  })
  afterAll(() => started?.stop())

  const run = (...words: readonly string[]): Promise<CtlRun> =>
    ctl(['-a', `unix://${started.path}`, ...words])

  it('sets and checks a policy on a terminal', async () => {
    const tool = [pinnedNode(), join(await buildAgentCtl(), 'installed', CTL_INSTALLED.start)]
    const env = { AGENT_CTL_ADDRESS: `unix://${started.path}` }
    const file = policyFile('package agent_policy\ndefault AllowRequestsFailingPolicy := true\n')
    const engine = await policyAddonFolder()
    const checked = new Terminal([...tool, 'policy', 'check', '--engine', engine, file], { env })
    await checked.shows(': no errors')
    expect(await checked.exited).toBe(0)
    const set = new Terminal([...tool, 'policy', 'set', file], { env })
    expect([await set.exited, set.unread]).toEqual([0, ''])
  })

  it('replaces the policy unless it cannot be parsed or the one in force refuses', async () => {
    expect(await run('policy', 'set', policyFile('package agent_policy\n\nbar {'))).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(
        /^agent-ctl: SetPolicy: INVALID_ARGUMENT: policy: agent_policy:3:5: .*\n$/,
      ),
    })
    expect(await run('policy', 'set', policyFile('\n'))).toMatchObject({ status: 2 })
    expect(await run('ListRoutes')).toMatchObject({ status: 0 })
    const locked =
      'package agent_policy\ndefault SetPolicyRequest := false\ndefault ListRoutesRequest := false\n'
    expect(await run('policy', 'set', policyFile(locked))).toEqual({ status: 0, stdout: '', stderr: '' })
    for (const words of [['ListRoutes'], ['policy', 'set', policyFile('package agent_policy\n')]])
      expect(await run(...words)).toMatchObject({
        status: 1,
        stderr: expect.stringContaining('PERMISSION_DENIED'),
      })
  })
})
