import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { projectRoot } from '../../src/build/project.ts'
import { filesAsJson, filesAsLines, imageOptions, UsageError } from '../../src/image/image-options.ts'

const FILES = [
  { name: 'vmlinuz', bytes: 14_186_432, sha256: 'aa', what: 'a kernel' },
  { name: 'SHA256SUMS', bytes: 599, sha256: 'bb', what: 'checksums' },
]

describe('the options of npm run image', () => {
  it('write into dist/image, and name that folder in the snippets', () => {
    const folder = join(projectRoot, 'dist/image')
    expect(imageOptions([])).toEqual({
      folder,
      installPath: folder,
      kernel: false,
      policyFile: undefined,
      debugShell: false,
      json: false,
    })
  })

  it('take both folders, in either form of an option', () => {
    expect(imageOptions(['--out', '/srv/out', '--install-path=/opt/guest', '--json'])).toEqual({
      folder: '/srv/out',
      installPath: '/opt/guest',
      kernel: false,
      policyFile: undefined,
      debugShell: false,
      json: true,
    })
  })

  it('ask for the kernel with built-in drivers', () => {
    expect(imageOptions(['--kernel'])).toMatchObject({ kernel: true })
  })

  it('name the file with the policy of the image', () => {
    expect(imageOptions(['--policy', 'policy.rego'])).toMatchObject({ policyFile: 'policy.rego' })
  })

  it('ask for a shell in the guest', () => {
    expect(imageOptions(['--with', 'debug-shell'])).toMatchObject({ debugShell: true })
  })

  it.each([['--help'], ['-h'], ['--json', '--help']])('ask for help: %s', (...argv) => {
    expect(imageOptions(argv)).toBe('help')
  })

  it.each([
    [['--jso'], 'unknown option --jso: see npm run image -- --help'],
    [['now'], 'unknown argument now: see npm run image -- --help'],
    [['--out'], '--out needs a value: see npm run image -- --help'],
    [['--out='], '--out needs a value: see npm run image -- --help'],
    [['--policy'], '--policy needs a value: see npm run image -- --help'],
    [['--json=yes'], '--json takes no value'],
    [['--kernel=trixie'], '--kernel takes no value'],
    [['--with'], '--with needs a value: see npm run image -- --help'],
    [['--with', 'bash'], '--with bash: unknown part, want debug-shell'],
    [['--with', 'debug-shell', '--with', 'bash'], '--with bash: unknown part, want debug-shell'],
    [['--with', 'bash', '--with', 'debug-shell'], '--with bash: unknown part, want debug-shell'],
    [['--install-path', 'opt'], '--install-path opt: give an absolute path'],
  ])('refuse %j in one sentence that says what to do', (argv, sentence) => {
    expect(() => imageOptions(argv)).toThrow(new UsageError(sentence))
  })
})

describe('the result of npm run image', () => {
  it('is a line for each file', () => {
    expect(filesAsLines('/out', FILES)).toBe(
      '/out\n  vmlinuz       14.2 MB  a kernel\n  SHA256SUMS     0.6 kB  checksums\n',
    )
  })

  it('is one line of JSON for scripts', () => {
    const text = filesAsJson('/out', FILES)
    expect(text.split('\n')).toHaveLength(2)
    expect(JSON.parse(text)).toEqual({
      folder: '/out',
      files: [
        { name: 'vmlinuz', bytes: 14_186_432, sha256: 'aa' },
        { name: 'SHA256SUMS', bytes: 599, sha256: 'bb' },
      ],
    })
  })
})
