import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Interruptions } from '../../../src/client/terminal/interruptions.ts'
import { type CtlRun, ctl } from '../../support/ctl/run-ctl.ts'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('agent-ctl shows what an agent reports about its guest', () => {
  let pod: AgentPod
  let address: string
  beforeAll(async () => {
    pod = await startPod()
    address = `unix://${pod.started.path}`
    await pod.run('web', ['sh', '-c', 'exec sleep 1000'], { env: ['SECRET=hunter2'] })
    const crash = await pod.add('web', 'crash', ['sh', '-c', 'kill -SEGV $$'])
    await crash.wait()
  })
  afterAll(() => pod.stop())

  const run = (...words: readonly string[]): Promise<CtlRun> => ctl(['-a', address, ...words])

  it('events, in lines and as JSON', async () => {
    const { status, stdout } = await run('events')
    expect(status).toBe(0)
    const line = (text: string) => expect.stringMatching(new RegExp(`^\\S+Z {2}\\d+ {2}${text}$`))
    const lines = stdout.trimEnd().split('\n')
    expect(lines).toContainEqual(line('agent started, restarts 0'))
    expect(lines).toContainEqual(line('web started, pid \\d+'))
    expect(lines).toContainEqual(line('web/crash ended: signal 11'))
    const json = (await run('-o', 'json', 'events', '--after', '1')).stdout.trimEnd().split('\n')
    expect(json.map((each) => JSON.parse(each).sequence)).not.toContain('1')
  })

  it('further events as they happen, until a signal', async () => {
    const interruptions = new Interruptions()
    const onOutput = (text: string) => {
      if (/web\/later ended: status 0\n/.test(text)) interruptions.receive('SIGINT')
    }
    const following = ctl(['-a', address, 'events', '-f'], { interruptions, onOutput })
    await pod.add('web', 'later', ['true'])
    expect(await following).toMatchObject({ status: 130, stderr: '' })
  })

  it('how long processes ran that ended at once', async () => {
    for (const id of ['short1', 'short2', 'short3', 'short4'])
      await (await pod.add('web', id, ['true'])).wait()
    const { stdout } = await run('exits', 'web')
    expect(stdout.match(/^web\/short\d +status 0 .*Z +\d+m?s /gm)).toHaveLength(4)
  })

  it('a container with its processes and exits', async () => {
    const { stdout } = await run('-o', 'json', 'inspect', 'web')
    expect(JSON.parse(stdout)).toMatchObject({
      container: { containerId: 'web', state: 'running' },
      processes: expect.arrayContaining([
        expect.objectContaining({ containerId: 'web', role: 'INIT', name: 'sleep' }),
      ]),
    })
    expect(JSON.parse((await run('inspect')).stdout)).toMatchObject({ sandbox: { containers: 1 } })
    expect(await run('inspect', 'nope')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('NOT_FOUND'),
    })
  })

  it.each([
    ['exits', /^web\/crash +signal 11 /m],
    ['net', /^address +lo +127\.0\.0\.1\/8 /m],
    ['mounts', /^MOUNT POINT +DRIVER/],
    ['mounts --all', /^\/proc +proc /m],
    ['devices', /^KIND +NAME/],
    ['metrics', /^# TYPE kata_agent_scrape_count \w+\nkata_agent_scrape_count \d+$/m],
    ['capabilities', /^kernel +file system tmpfs +yes +registered$/m],
    ['stacks', /^\d+\/\d+ .*: .*\n( {4}.*\n)*/],
  ])('tables: %s', async (words, shown) => {
    const { status, stderr, stdout } = await run(...words.split(' '))
    expect([status, stderr]).toEqual([0, ''])
    expect(stdout).toMatch(shown)
  })

  it.each([
    ['ps', { role: 'INIT', containerId: 'web' }],
    ['top', { role: 'INIT', containerId: 'web' }],
    ['devices', { kind: 'NETWORK', name: 'lo' }],
    ['capabilities', { kind: 'RPC', name: 'grpc.AgentService/CreateContainer' }],
  ])('enums by their names in JSON: %s', async (words, row) => {
    const { stdout } = await run('-o', 'json', words)
    const rows = stdout.trimEnd().split('\n')
    expect(rows.map((each) => JSON.parse(each))).toContainEqual(expect.objectContaining(row))
  })

  it.each([
    ['cpu', ['--seconds', '1'], 'nodes'],
    ['heap', [], 'snapshot'],
  ])('a %s profile, which only its owner may read', async (kind, words, field) => {
    const file = join(temporaryFolder(), 'profile')
    const { status, stderr } = await run('profile', kind, file, ...words)
    expect([status, stderr]).toEqual([0, ''])
    expect(JSON.parse(readFileSync(file, 'utf8'))).toHaveProperty(field)
    expect(statSync(file).mode & 0o777).toBe(0o600)
  })

  it('the processes with most memory first', async () => {
    const { status, stdout } = await run('top')
    expect(status).toBe(0)
    expect(stdout).toMatch(/^CONTAINER +PID /)
    expect(stdout).toMatch(/^web .* sleep$/m)
  })

  it('how long a call takes', async () => {
    const { status, stdout } = await run('bench', '--calls', '50', '--parallel', '5')
    expect(status).toBe(0)
    expect(stdout).toMatch(/^Check: 50 calls, p50 [\d.]+ ms, p99 [\d.]+ ms, max [\d.]+ ms, \d+ a second\n$/)
    const json = JSON.parse((await run('-o', 'json', 'bench', 'ListRoutes', '--calls', '2')).stdout)
    expect(json).toMatchObject({ method: 'ListRoutes', calls: 2, parallel: 1 })
    expect((await run('bench', 'StartContainer', 'container_id=nope')).status).toBe(1)
  })

  it('the answers to lines of its shell, which continues after a failure', async () => {
    const stdin = 'exits web\n\nnope\nexec web sh -c \'echo "in the shell"\'\nx "\nexit\nps\n'
    const { status, stderr, stdout } = await ctl(['-a', address, 'shell'], { stdin })
    expect(status).toBe(0)
    expect(stdout).toContain('web/crash')
    expect(stdout).toContain('in the shell\n')
    expect(stdout).not.toContain('CONTAINER')
    expect(stderr.match(/^agent-ctl: .*$/gm)).toEqual([
      expect.stringContaining('unknown command "nope"'),
      expect.stringContaining('a quote is not closed'),
    ])
  })

  it.each([
    ['ps wbe', 'ListProcesses: NOT_FOUND: Invalid container id "wbe", did you mean "web"?'],
    ['exec other true', 'ExecProcess: INTERNAL: Invalid container id "other", want one of web'],
    [
      'SignalProcess signal=15',
      'SignalProcess: INVALID_ARGUMENT: Invalid container id: container_id is empty, want one of web',
    ],
    [
      'policy set /etc/hostname',
      'SetPolicy: NOT_FOUND: this image has no policy engine, want one of npm run image',
    ],
  ])('what helps after a mistake: %s', async (words, error) => {
    expect((await run(...words.split(' '))).stderr).toBe(`agent-ctl: ${error}\n`)
  })

  it('that a unix socket has no console', async () => {
    const { status, stderr } = await run('console')
    expect([status, stderr]).toEqual([
      2,
      `agent-ctl: ${address}: has no ports, want vsock://CID or hvsock://PATH\n`,
    ])
  })

  it('a report that says first what is suspicious, without secrets and without the mistakes of callers', async () => {
    expect((await run('exec', 'web', 'nosuch')).status).toBe(127)
    expect((await run('exec', 'web', '/')).status).toBe(126)
    const { status, stdout } = await run('doctor')
    expect(status).toBe(1)
    const suspicious = stdout.split('\n').filter((line) => line.startsWith('! '))
    expect(suspicious).toContainEqual(expect.stringMatching(/^! web\/crash crashed: signal 11, /))
    expect(suspicious.filter((line) => line.includes('ExecProcess'))).toEqual([])
    expect(stdout.startsWith('! ')).toBe(true)
    const headings = [...stdout.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading)
    expect(headings).toEqual(
      expect.arrayContaining(['version', 'containers', 'events', 'network', 'stacks', 'metrics']),
    )
    expect(stdout).not.toContain('hunter2')
    expect(JSON.parse((await run('-o', 'json', 'doctor')).stdout)).toMatchObject({ untold: {} })
  })

  it('on a terminal only what is suspicious, and where the report goes', async () => {
    const { status, stdout } = await ctl(['-a', address, 'doctor'], { columns: 80 })
    expect(status).toBe(1)
    expect(stdout).toMatch(/^(! .*\n)+(- .*\n)*the whole report: agent-ctl doctor > FILE\n$/)
  })

  it('that a container is paused', async () => {
    await run('PauseContainer', 'container_id=web')
    const [processes, report] = [await run('ps', 'web'), await run('doctor')]
    const { stderr } = await run('ResumeContainer', 'container_id=web')
    expect(stderr).toBe('')
    expect(processes.stdout).toMatch(/^web +\d+ +init +paused /m)
    expect(report.stdout).toMatch(
      /^! web is paused: agent-ctl ResumeContainer container_id=web lets it go on$/m,
    )
  })
})
