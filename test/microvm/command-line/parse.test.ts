import { describe, expect, it } from 'vitest'
import packageJson from '../../../package.json' with { type: 'json' }
import { MICROVM_HELP, RUN_HELP } from '../../../src/microvm/command-line/help.mjs'
import { OPTIONS } from '../../../src/microvm/command-line/options.mjs'
import { parseCommandLine, type RunOptions } from '../../../src/microvm/command-line/parse.mjs'
import { UsageError } from '../../../src/microvm/command-line/usage-error.mjs'

function runOptions(...words: string[]): RunOptions {
  const commandLine = parseCommandLine(['run', ...words])
  if (commandLine.kind !== 'run') throw new Error('help was asked for')
  return commandLine.options
}

describe('parseCommandLine', () => {
  it('reads everything from the first word that is not an option as the command', () => {
    expect(runOptions('--cpus', '1', 'sh', '-c', 'exit 7', '--verbose')).toMatchObject({
      cpus: 1,
      verbose: false,
      command: ['sh', '-c', 'exit 7', '--verbose'],
    })
  })

  it.each([[['-it', 'sh', '-x']], [['-i', '-t', '--', 'sh', '-x']], [['-tieA=1', 'sh', '-x']]])(
    'finds the command behind grouped options: %j',
    (words) => {
      expect(runOptions(...words)).toMatchObject({ interactive: true, tty: true, command: ['sh', '-x'] })
    },
  )

  it('reads a word that begins with a dash as the value of the option before it', () => {
    expect(runOptions('--append', '--quiet', '-').append).toEqual(['--quiet'])
  })

  it('reads everything after -- as the command', () => {
    expect(runOptions('-t', '--', '--strange').command).toEqual(['--strange'])
  })

  it.each([
    [['-it'], { interactive: true, tty: true }],
    [['-i'], { interactive: true, tty: false }],
    [['--tty'], { interactive: false, tty: true }],
    [['--memory=128'], { memoryMib: 128 }],
    [['--form', 'initrd'], { memoryMib: 1024 }],
    [['--name', 'web-1'], { name: 'web-1' }],
    [[], { name: undefined }],
    [['--kernel', './vmlinuz'], { kernel: 'trixie', kernelFile: './vmlinuz' }],
    [['--kernel', 'bookworm'], { kernel: 'bookworm', kernelFile: undefined }],
    [['--metadata', 'vm.yaml'], { metadata: 'vm.yaml' }],
    [['-u', 'app:2'], { user: 'app:2' }],
    [['-e', 'A=1', '--env=B=x=y'], { env: ['A=1', 'B=x=y'] }],
    [['--append', 'a b', '--append', 'c'], { append: ['a b', 'c'] }],
    [
      ['--machine', 'microvm', '--kernel', 'bookworm', '--form', 'initrd'],
      { machine: 'microvm', kernel: 'bookworm' },
    ],
  ])('parses %j', (words, expected) => {
    expect(runOptions(...words)).toMatchObject(expected)
  })

  it.each([
    [['fly'], 'unknown command fly'],
    [['run', '--root-device', 'nvdimm'], '--root-device nvdimm: choose --form partitioned or --image'],
    [
      ['run', '--root-device', 'nvdimm', '--form', 'partitioned', '--machine', 'microvm'],
      '--root-device nvdimm: machine microvm has no persistent memory',
    ],
    [['run', '--console', 'vga'], '--console vga: choose one of serial, virtio'],
    [['rum'], 'unknown command rum, did you mean "run"?'],
    [['completion', 'csh'], 'completion csh: choose one of bash, zsh, fish'],
    [['completion'], 'completion: choose one of bash, zsh, fish'],
    [['--fly'], 'unknown option --fly, see ./microvm --help'],
    [['--versoin'], 'unknown option --versoin, did you mean "--version"?'],
    [['run', '--memmory', '512'], 'unknown option --memmory, did you mean "--memory"?'],
    [['run', '-v', '/a:/b'], 'unknown option -v, see ./microvm run --help'],
    [['run', '--name', 'Web'], '--name Web: give up to 32 lower-case letters, digits and hyphens'],
    [['run', '--name', '-web'], '--name -web: give up to 32'],
    [['run', '--name', '../web'], '--name ../web: give up to 32'],
    [['run', '--fly'], 'unknown option --fly'],
    [['run', '-x'], 'unknown option -x'],
    [['run', '--toString'], 'unknown option --toString'],
    [['run', '-tx'], 'unknown option -x'],
    [['run', '--rootfs'], '--rootfs needs a value'],
    [['run', '--timings=yes'], '--timings takes no value'],
    [['run', '--memory', '100'], '--memory 100: want at least 128 with --form disk'],
    [['run', '--memory', '447', '--form', 'initrd'], '--memory 447: want at least 448 with --form initrd'],
    [['run', '--memory', '1G'], '--memory 1G: give a whole number from 1'],
    [['run', '--cpus', 'two'], '--cpus two: give a whole number from 1 to 64'],
    [['run', '--machine', 'vax'], '--machine vax: choose one of q35, pc, microvm'],
    [['run', '--env', 'NAME'], '--env NAME: give it as NAME=VALUE'],
    [['run', '--workdir', 'tmp'], '--workdir tmp: give an absolute path'],
    [['run', '--form', 'initrd', '--image', 'x'], '--image and --form initrd exclude each other'],
  ])('refuses %j in one sentence', (words, sentence) => {
    expect(() => parseCommandLine(words)).toThrow(UsageError)
    expect(() => parseCommandLine(words)).toThrow(sentence)
  })

  it.each([
    [[], MICROVM_HELP],
    [['--help'], MICROVM_HELP],
    [['run', '--help'], RUN_HELP],
    [['run', '--cpus', '1', '-h', 'true'], RUN_HELP],
  ])('answers %j with help', (words, text) => {
    expect(parseCommandLine(words)).toEqual({ kind: 'text', text })
  })

  it('answers --version with that of the package', () => {
    const text = `microvm ${packageJson.version}\n`
    expect(['--version', '-V'].map((word) => parseCommandLine([word]))).toEqual([
      { kind: 'text', text },
      { kind: 'text', text },
    ])
  })

  it('explains in plain words what does not exist', () => {
    expect(RUN_HELP).toContain('The guest has no network without --metadata. There are no volumes (-v) yet')
  })

  it('leaves --help after the command to the command', () => {
    expect(runOptions('ls', '--help').command).toEqual(['ls', '--help'])
  })

  it('explains every option', () => {
    for (const name of Object.keys(OPTIONS)) expect(RUN_HELP).toContain(`--${name}`)
  })
})
