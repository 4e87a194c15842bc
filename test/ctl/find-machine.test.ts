import { execFileSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { type Registration, registerMachine } from '../../src/client/machines/register.ts'
import { ctl } from '../support/ctl/run-ctl.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

/** No agent listens there; the tool's error names the address that it tried. */
const addressOf = (name: string) => ({ kind: 'unix', path: `/nowhere/${name}.sock` }) as const
const noSocket = (name: string) => `agent-ctl: unix:///nowhere/${name}.sock: no such socket; check the path`

describe('agent-ctl without the address of an agent', () => {
  let folder: string
  beforeEach(() => {
    folder = join(temporaryFolder(), 'machines')
  })

  function start(name: string): Registration {
    const registration = registerMachine(folder, name)
    registration.publish(addressOf(name))
    return registration
  }

  const run = (...words: readonly string[]) => ctl([...words, 'ps'], { env: { MICROVM_REGISTRY: folder } })

  it('takes the machine that runs', async () => {
    start('ant')
    expect((await run()).stderr).toContain(noSocket('ant'))
  })

  it('takes the machine that is named, also by the environment', async () => {
    start('ant')
    start('bee')
    expect((await run('-a', 'microvm://bee')).stderr).toContain(noSocket('bee'))
    const env = { MICROVM_REGISTRY: folder, AGENT_CTL_ADDRESS: 'microvm://ant' }
    expect((await ctl(['ps'], { env })).stderr).toContain(noSocket('ant'))
  })

  it('lists the machines when several run', async () => {
    start('bee')
    start('ant')
    expect(await run()).toMatchObject({
      status: 2,
      stderr: 'agent-ctl: several machines run: ant, bee; want -a microvm://NAME\n',
    })
  })

  it('says how to start one when none runs', async () => {
    const { status, stderr } = await run()
    expect(status).toBe(2)
    expect(stderr).toMatch(
      /no machine of this user runs; start one with .\/microvm run, or give .*vsock:\/\/CID/,
    )
  })

  it.each([
    ['web', 'machine "web": not running, want one of ant\n'],
    ['Web', 'machine "Web": not running, want one of ant\n'],
    ['../ant', 'address "microvm://../ant": no name of a machine'],
    ['', 'address "microvm://": no name of a machine'],
  ])('says that no machine is named %j', async (name, text) => {
    start('ant')
    expect((await run('-a', `microvm://${name}`)).stderr).toContain(text)
  })

  it('skips files that are no entries, and says why when one is named', async () => {
    start('ant')
    symlinkSync('ant', join(folder, 'link'))
    execFileSync('mkfifo', [join(folder, 'fifo')])
    writeFileSync(join(folder, 'half'), '{"version":1,"pi')
    mkdirSync(join(folder, 'folder'))
    expect((await run()).stderr).toContain(noSocket('ant'))
    const named = async (name: string) => (await run('-a', `microvm://${name}`)).stderr
    expect(await named('link')).toBe(`agent-ctl: machine "link": ${folder}/link: a symbolic link\n`)
    expect(await named('fifo')).toBe(`agent-ctl: machine "fifo": ${folder}/fifo: not a regular file\n`)
    expect(await named('half')).toBe(`agent-ctl: machine "half": ${folder}/half: no entry of a machine\n`)
    expect(await named('folder')).toBe(`agent-ctl: machine "folder": ${folder}/folder: not a regular file\n`)
  })

  it('does not connect to a machine that boots', async () => {
    registerMachine(folder, 'ant')
    expect(await run()).toMatchObject({
      status: 125,
      stderr: `agent-ctl: machine "ant": boots still (pid ${process.pid}), wait for it with --wait\n`,
    })
  })

  it('waits for an absent machine, but no longer than asked', async () => {
    expect((await run('--wait', '0.2', '-a', 'microvm://ant')).stderr).toContain('machine "ant": not running')
  })

  it('says what is wrong with the folder', async () => {
    writeFileSync(folder, '')
    const { status, stderr } = await run()
    expect(status).toBe(125)
    expect(stderr).toBe(`agent-ctl: machines in ${folder}: not a directory\n`)
  })
})
