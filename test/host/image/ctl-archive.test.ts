import { execFileSync, spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { pinnedNode } from '../../../src/build/project.ts'
import { makeCtlArchive } from '../../../src/image/archives/ctl-archive.ts'
import { ensurePolicyAddon } from '../../../src/image/policy-addon.ts'
import { noPolicyAddon } from '../../support/os/policy-addon.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const withoutPolicies = (await noPolicyAddon()) !== undefined

/** Prints whether V8 rejects the code cache of each script; undefined where there is none. */
const CACHE_SPY = `
const vm = require('node:vm')
vm.Script = class extends vm.Script {
  constructor(...options) {
    super(...options)
    console.log('rejected:', this.cachedDataRejected)
  }
}
`

/** Prints the version of Node-API that an addon wants; none of Node's symbols is looked up. */
const WANTED_NODE_API = `
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
  void *addon = dlopen(words[1], RTLD_LAZY);
  int (*version)(void) = addon == NULL ? NULL : (int (*)(void))dlsym(addon, "node_api_module_get_api_version_v1");
  if (version == NULL) return fprintf(stderr, "%s\\n", dlerror());
  return printf("%d", version()) < 0;
}
`

/** Makes Node look like an older version: another V8, and without functions that Node 20 lacks. */
const olderNode = (version: string) => `
Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}', v8: '11.3.244.8' } })
delete Promise.withResolvers
delete Map.groupBy
`

describe('agent-ctl of npm run dist', () => {
  let tool: string
  let root: string
  beforeAll(async () => {
    const policy = withoutPolicies ? undefined : await ensurePolicyAddon(() => {})
    const files = await makeCtlArchive(join(temporaryFolder(), 'dist'), policy)
    const [archive = ''] = files.slice(-1)
    tool = files[0] ?? ''
    root = temporaryFolder()
    mkdirSync(root, { recursive: true })
    execFileSync('tar', ['--zstd', '-xf', archive, '-C', root])
  })

  const run = (program: string, ...words: readonly string[]) =>
    spawnSync(pinnedNode(), [program, ...words], { encoding: 'utf8', env: {} })

  it('is one file that needs only Node', () => {
    expect(run(tool, 'SignalProcess', '--help')).toMatchObject({ status: 0, stderr: '' })
    expect(run(tool, '-a', 'unix:///nonexistent', 'ps')).toMatchObject({
      status: 125,
      stderr:
        'agent-ctl: unix:///nonexistent: no such socket; check the path, or wait for the agent with --wait\n',
    })
  })

  const runAfter = (code: string, program: string, ...words: readonly string[]) => {
    const file = join(temporaryFolder(), 'before.cjs')
    writeFileSync(file, code)
    const args = ['--require', file, program, ...words]
    return spawnSync(pinnedNode(), args, { encoding: 'utf8', env: {} })
  }

  it('starts from a code cache, as one file and where the archive is unpacked', () => {
    for (const program of [tool, join(root, 'usr/bin/agent-ctl')]) {
      expect(runAfter(CACHE_SPY, program, '--version').stdout).toMatch(
        /^rejected: false\nagent-ctl [\d.]+\n$/,
      )
    }
  })

  it('starts without its cache on an older Node, and says which one is too old', () => {
    const doctor = ['-a', 'unix:///nonexistent', 'doctor']
    const older = runAfter(CACHE_SPY + olderNode('20.0.0'), tool, ...doctor)
    expect(older).toMatchObject({
      stdout: expect.stringMatching(/^rejected: undefined\n/),
      stderr: run(tool, ...doctor).stderr,
    })
    expect(runAfter(olderNode('18.20.4'), tool, '--version')).toMatchObject({
      status: 2,
      stdout: '',
      stderr: 'agent-ctl: Node.js 18.20.4 is too old, want 20 or newer\n',
    })
  })

  it('has an addon that Node 20 can load, which dies of one for Node-API 10', () => {
    const program = join(temporaryFolder(), 'wanted')
    execFileSync('cc', ['-x', 'c', '-o', program, '-'], { input: WANTED_NODE_API })
    const addon = join(root, 'usr/lib/agent-ctl/addon.node')
    const wanted = execFileSync(program, [addon], { encoding: 'utf8' })
    expect(Number(wanted)).toBeGreaterThan(0)
    expect(Number(wanted)).toBeLessThan(10)
  })

  it('says without the addon what vsock needs, and finds it where the archive is unpacked', () => {
    const alone = run(tool, '-a', 'vsock://3:1024', 'Check')
    expect(alone.status).toBe(125)
    expect(alone.stderr).toContain(
      'vsock://3:1024: Node.js has no vsock of its own and addon.node was not found',
    )
    const installed = run(
      join(root, 'usr/bin/agent-ctl'),
      '-a',
      'vsock://99:1024',
      '--timeout',
      '1s',
      'Check',
    )
    expect(installed.status).toBe(125)
    expect(installed.stderr).not.toContain('addon.node')
    expect(installed.stderr).toMatch(/^agent-ctl: vsock:\/\/99:1024: .*\n$/)
  })

  it.skipIf(withoutPolicies)(
    'checks policies where the archive is unpacked and beside the evaluator, and alone says what it lacks',
    () => {
      const file = join(temporaryFolder(), 'policy.rego')
      writeFileSync(file, 'package agent_policy\n\ndefault SetPolicyRequest = \n')
      for (const program of [join(root, 'usr/bin/agent-ctl'), tool])
        expect(run(program, 'policy', 'check', file)).toMatchObject({
          status: 1,
          stdout: expect.stringMatching(/^\S+\.rego:\d+:\d+: /),
        })
      const alone = join(temporaryFolder(), 'agent-ctl.cjs')
      copyFileSync(tool, alone)
      expect(run(alone, 'policy', 'check', file)).toMatchObject({
        status: 125,
        stderr:
          'agent-ctl: policy check: policy.node: not found, want it in the folder of agent-ctl, in /usr/lib/microvm-agent or in --engine FOLDER; npm run dist builds it into dist/\n',
      })
    },
  )

  it('has a man page and completions', () => {
    expect(readFileSync(join(root, 'usr/share/man/man1/agent-ctl.1'), 'utf8')).toContain('.TH AGENT-CTL 1')
    const completion = join(root, 'usr/share/bash-completion/completions/agent-ctl')
    expect(spawnSync('bash', ['-n', completion])).toMatchObject({ status: 0 })
  })
})
