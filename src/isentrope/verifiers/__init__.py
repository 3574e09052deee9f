"""Verifiers: is this completion right?"""
