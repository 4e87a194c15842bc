import { tool } from '../build/tool.ts'
import { extractPackage, type FetchedPackage } from '../debian/packages.ts'

/**
 * The packages of Rust's compiler and of cargo, with the libraries that a machine without cargo may lack. Those whose
 * names have the version of Rust or LLVM in them are found by their dependencies.
 */
export const rustPackages: readonly string[] = [
  ...['cargo-web', 'rustc-web', 'libstd-rust-web-dev'],
  ...['libgit2-1.5', 'libhttp-parser2.9', 'libpcre2-8-0', 'libmbedcrypto7', 'libmbedtls14', 'libmbedx509-1'],
  ...[
    'libcurl4',
    'libbrotli1',
    'libldap-2.5-0',
    'libnghttp2-14',
    'libpsl5',
    'librtmp1',
    'libsasl2-2',
    'libssh2-1',
  ],
  ...['libgssapi-krb5-2', 'libk5crypto3', 'libkeyutils1', 'libkrb5-3', 'libkrb5support0'],
  ...['libffi8', 'libgnutls30', 'libhogweed6', 'libidn2-0', 'libnettle8', 'libp11-kit0', 'libtasn1-6'],
  ...['libunistring2', 'libgmp10', 'libsqlite3-0'],
  ...['libbsd0', 'libedit2', 'libicu72', 'libmd0', 'libxml2', 'libz3-4'],
]

export async function fetchRust(
  fetch: (names: readonly string[]) => Promise<readonly FetchedPackage[]>,
): Promise<readonly FetchedPackage[]> {
  const named = await fetch(rustPackages)
  const standard = await fetch(await dependencies(named, /^libstd-rust-web-[\d.]+$/))
  const llvm = await fetch(await dependencies(standard, /^libllvm\d+$/))
  return [...named, ...standard, ...llvm]
}

async function dependencies(
  packages: readonly FetchedPackage[],
  pattern: RegExp,
): Promise<readonly string[]> {
  const names = new Set<string>()
  for (const { path } of packages) {
    const depends = await tool('dpkg-deb', ['--field', path, 'Depends'], { debianPackage: 'dpkg' })
    for (const name of depends.split(/[\s,|]+/)) if (pattern.test(name)) names.add(name)
  }
  return [...names]
}

/** Unpacks Rust's packages into `folder` and returns the environment in which its programs run. */
export async function unpackRust(
  packages: readonly FetchedPackage[],
  folder: string,
): Promise<Readonly<Record<string, string>>> {
  for (const { path } of packages) await extractPackage(path, folder)
  return {
    PATH: `${folder}/usr/bin:${process.env.PATH ?? ''}`,
    RUSTC: `${folder}/usr/bin/rustc`,
    LD_LIBRARY_PATH: `${folder}/usr/lib/x86_64-linux-gnu`,
  }
}
