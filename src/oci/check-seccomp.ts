import type { LinuxSeccomp } from '../gen/oci.ts'
import { checkWord } from './check-field.ts'

const ACTIONS = [
  'KILL',
  'KILL_PROCESS',
  'KILL_THREAD',
  'TRAP',
  'ERRNO',
  'TRACE',
  'ALLOW',
  'LOG',
  'NOTIFY',
].map((name) => `SCMP_ACT_${name}`)

const OPERATORS = ['NE', 'LT', 'LE', 'EQ', 'GE', 'GT', 'MASKED_EQ'].map((name) => `SCMP_CMP_${name}`)

const ARCHITECTURES = [
  ...[
    'NATIVE',
    'X86',
    'X86_64',
    'X32',
    'ARM',
    'AARCH64',
    'MIPS',
    'MIPS64',
    'MIPS64N32',
    'MIPSEL',
    'MIPSEL64',
  ],
  ...['MIPSEL64N32', 'PPC', 'PPC64', 'PPC64LE', 'S390', 'S390X', 'PARISC', 'PARISC64', 'RISCV64'],
].map((name) => `SCMP_ARCH_${name}`)

const FLAGS = ['TSYNC', 'LOG', 'SPEC_ALLOW', 'WAIT_KILLABLE_RECV'].map(
  (name) => `SECCOMP_FILTER_FLAG_${name}`,
)

/** Throws INVALID_ARGUMENT for a word of a seccomp profile that means nothing: a typing error must not open a hole. */
export function checkSeccomp(seccomp: LinuxSeccomp): void {
  checkWord('Linux.Seccomp.DefaultAction', ACTIONS, seccomp.DefaultAction)
  for (const architecture of seccomp.Architectures) {
    checkWord('Linux.Seccomp.Architectures', ARCHITECTURES, architecture)
  }
  for (const flag of seccomp.Flags) checkWord('Linux.Seccomp.Flags', FLAGS, flag)
  for (const { Action: action, Args: args } of seccomp.Syscalls) {
    checkWord('Linux.Seccomp.Syscalls.Action', ACTIONS, action)
    for (const { Op: operator } of args) checkWord('Linux.Seccomp.Syscalls.Args.Op', OPERATORS, operator)
  }
}
